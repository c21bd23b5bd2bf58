// A save that cannot succeed is refused before its first byte, on all ranks alike, and nothing is lost by it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cairn/checkpoint.hpp"
#include "comm/mpi.hpp"
#include "expect_error.hpp"
#include "format/run_log.hpp"
#include "root/run_log.hpp"
#include "scratch_mount.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "soft_limit.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::uint64_t kMib = 1 << 20;

Options quick() {
  Options options = options_for_small_state();
  options.lease.wait_seconds = 0;
  return options;
}

class PreflightOfSaves : public testing::Test {
 protected:
  PreflightOfSaves() { state_.fill(1); }

  /// Collective: the error of a save, the same on all ranks.
  Error refused(Checkpointer& checkpointer, std::uint64_t step, bool is_async = false) {
    std::optional<Error> found;
    try {
      if (is_async) {
        checkpointer.save_async(step, state_.sources()).wait();
      } else {
        checkpointer.save(step, state_.sources());
      }
    } catch (const Error& error) {
      found = error;
    }
    EXPECT_TRUE(found) << "step " << step << " was saved";
    return found.value_or(Error(ErrorKind::kInternal, "no error"));
  }

  /// Collective: the root has exactly these steps, the last of them is whole, and nothing else is left.
  void expect_only(Checkpointer& checkpointer, std::initializer_list<std::uint64_t> expected, const fs::path& root) {
    std::vector<std::uint64_t> found;
    for (const StepInfo& step : checkpointer.steps()) found.push_back(step.step);
    EXPECT_EQ(found, std::vector<std::uint64_t>(expected));
    EXPECT_EQ(checkpointer.latest(), *(expected.end() - 1));
    loaded_.clear();
    checkpointer.load(*(expected.end() - 1), loaded_.targets());
    EXPECT_EQ(loaded_.matching_bytes(1), loaded_.bytes());
    for (const auto& entry : fs::directory_iterator(root)) {
      EXPECT_EQ(entry.path().string().find(".partial"), std::string::npos) << entry.path();
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }

  void expect_logged_refusal(const fs::path& root, std::uint64_t step, const std::string& text) const {
    MPI_Barrier(MPI_COMM_WORLD);
    const format::RunLog log = root::read_run_log(root);
    MPI_Barrier(MPI_COMM_WORLD);
    std::optional<format::LogCall> last;
    for (const format::LogCall& call : log.calls) {
      if (call.what == format::kLogSave) last = call;
    }
    ASSERT_TRUE(last);
    EXPECT_EQ(last->outcome, format::kLogRefused);
    EXPECT_EQ(last->step, step);
    EXPECT_EQ(last->error_kind, "io");
    EXPECT_THAT(last->error, HasSubstr(text.substr(0, 100)));
  }

  const World world_;
  SharedTempDir directory_;
  std::unique_ptr<comm::Communicator> communicator_ = comm::duplicate_mpi(MPI_COMM_WORLD);
  RankState state_{small_state(), Cut::kRows, world_.rank, world_.ranks};
  RankState loaded_{small_state(), Cut::kRows, world_.rank, world_.ranks};
};

TEST_F(PreflightOfSaves, WantOfSpaceIsFoundBeforeAnythingIsWritten) {
  ScratchMount mount(*communicator_, directory_.path(), 5 * kMib / 2);
  if (!mount.problem().empty()) GTEST_SKIP() << mount.problem();
  const fs::path root = mount.path() / "root";
  {
    Checkpointer checkpointer(MPI_COMM_WORLD, root, quick());
    EXPECT_EQ(checkpointer.save(1, state_.sources()).expected_seconds, 0);
    const double expected = checkpointer.save(2, state_.sources()).expected_seconds;
    EXPECT_EQ(expected > 0, world_.rank == 0);
    for (const bool is_async : {false, true}) {
      const Error error = refused(checkpointer, 3, is_async);
      EXPECT_EQ(error.kind(), ErrorKind::kIo);
      EXPECT_EQ(error.system_error(), ENOSPC);
      expect_one_line(error.what(), {"No space left on device: the save needs ", "tmpfs at '", "too few", "cairn prune",
                                     "nothing was written"});
      expect_logged_refusal(root, 3, "No space left on device");
      expect_only(checkpointer, {1, 2}, root);
    }
  }
  {
    Options options = quick();
    options.preflight = false;
    Checkpointer checkpointer(MPI_COMM_WORLD, root, options);
    const Error error = refused(checkpointer, 3);
    EXPECT_EQ(error.system_error(), ENOSPC);
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("the save needs")));
    expect_only(checkpointer, {1, 2}, root);
  }
  Options options = quick();
  options.retention.keep_last = 2;
  options.retention.prune_before = true;
  double told = 0;
  options.progress = [&](const Progress& progress) { told = progress.expected_seconds; };
  Checkpointer checkpointer(MPI_COMM_WORLD, root, options);
  const Report report = checkpointer.save(3, state_.sources());
  EXPECT_EQ(report.pruned.size(), world_.rank == 0 ? 1U : 0U);
  if (world_.rank == 0) {
    EXPECT_EQ(report.pruned.front().step, 1U);
    EXPECT_GT(report.freed_bytes, kMib / 2);
    EXPECT_GT(report.expected_seconds, 0);  // by the log
    EXPECT_EQ(told, report.expected_seconds);
  }
  expect_only(checkpointer, {2, 3}, root);
}

TEST_F(PreflightOfSaves, TheNewestCheckpointNeverGoesForTheNext) {
  ScratchMount mount(*communicator_, directory_.path(), 3 * kMib / 2);
  if (!mount.problem().empty()) GTEST_SKIP() << mount.problem();
  Options options = quick();
  options.retention.keep_last = 1;
  options.retention.prune_before = true;
  const fs::path root = mount.path() / "root";
  Checkpointer checkpointer(MPI_COMM_WORLD, root, options);
  checkpointer.save(1, state_.sources());
  EXPECT_EQ(refused(checkpointer, 2).system_error(), ENOSPC);
  expect_only(checkpointer, {1}, root);
}

TEST_F(PreflightOfSaves, WantOfInodes) {
  ScratchMount mount(*communicator_, directory_.path(), 16 * kMib);
  if (!mount.problem().empty()) GTEST_SKIP() << mount.problem();
  const fs::path root = mount.path() / "root";
  Checkpointer checkpointer(MPI_COMM_WORLD, root, quick());
  const Report first = checkpointer.save(1, state_.sources());
  const auto leave = [&](std::uint64_t files) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_.rank == 0) {
      struct statvfs found {};
      ASSERT_EQ(::statvfs(mount.path().c_str(), &found), 0);
      const std::string options = "nr_inodes=" + std::to_string(found.f_files - found.f_ffree + files);
      ASSERT_EQ(::mount("cairn-test", mount.path().c_str(), "tmpfs", MS_REMOUNT, options.c_str()), 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);
  };
  leave(first.files);
  const Error error = refused(checkpointer, 2);
  EXPECT_EQ(error.system_error(), ENOSPC);
  expect_one_line(error.what(), {"files and directories", "has " + std::to_string(first.files) + " left (inodes)"});
  expect_logged_refusal(root, 2, "No space left on device");
  leave(1000);
  expect_only(checkpointer, {1}, root);
  checkpointer.save(2, state_.sources());
  expect_only(checkpointer, {1, 2}, root);
}

TEST_F(PreflightOfSaves, ALimitOfFileSizesOnOneRank) {
  const fs::path root = directory_.path() / "limited";
  Checkpointer checkpointer(MPI_COMM_WORLD, root, quick());
  checkpointer.save(1, state_.sources());
  {
    std::optional<SoftLimit> limit;
    if (world_.rank == world_.ranks - 1) limit.emplace(RLIMIT_FSIZE, 10'000);
    const Error error = refused(checkpointer, 2);
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_EQ(error.system_error(), EFBIG);
    EXPECT_EQ(error.rank(), world_.ranks - 1);
    expect_one_line(error.what(), {"File too large: '", ".safetensors' would have ",
                                   "files of this process may have 10000 bytes: raise the limit (ulimit -f)"});
    MPI_Barrier(MPI_COMM_WORLD);
  }
  expect_logged_refusal(root, 2, "File too large");
  expect_only(checkpointer, {1}, root);
}

TEST_F(PreflightOfSaves, AnOptionWithoutEffectIsAnError) {
  Options options = quick();
  options.retention.prune_before = true;
  const auto make = [&] { Checkpointer(MPI_COMM_WORLD, directory_.path() / "none", options); };
  expect_error(ErrorKind::kUsage, make, {"Retention::prune_before", "without a rule"});
  options.retention.keep_last = 1;
  options.preflight = false;
  expect_error(ErrorKind::kUsage, make, {"Retention::prune_before needs Options::preflight"});
  options = quick();
  options.environment.command_line = true;
  expect_error(ErrorKind::kUsage, make, {"Options::environment.command_line"});
}

}  // namespace
}  // namespace cairn::test
