// Failures of one rank in the engines that write files (mpiio on ROMIO): every rank gets the same error soon, and the
// next save works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>

#include "base/aligned_buffer.hpp"
#include "comm/mpi.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "scratch_mount.hpp"
#include "shared_temp_dir.hpp"
#include "small_save.hpp"

namespace cairn::test {
namespace {

using testing::HasSubstr;

class EngineFault : public testing::TestWithParam<const char*> {
 protected:
  EngineFault() {
    os::set_fault_rank(communicator_->rank());
    const comm::MpiIoImplementation implementation = comm::mpi_io_implementation();
    EXPECT_FALSE(implementation.loses_write_errors) << implementation.io_component;
  }
  ~EngineFault() override { os::set_faults(""); }

  /// The common error of `work` while `rules` apply on `rank`.
  std::string error_under(const std::string& rules, int rank, const std::function<void()>& work) {
    os::set_faults(rules + ":rank=" + std::to_string(rank));
    const auto begin = std::chrono::steady_clock::now();
    const std::string text = common_error(*communicator_, ErrorKind::kIo, work);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
    os::set_faults("");
    if (communicator_->size() > 1) {
      EXPECT_THAT(text, HasSubstr("(rank " + std::to_string(rank) + ")"));
    }
    return text;
  }
  [[nodiscard]] std::vector<int> ranks_to_fail() const {
    if (communicator_->size() == 1) return {0};
    return {0, communicator_->size() - 1};
  }

  [[nodiscard]] bool is_bounced() const { return std::string(GetParam()) == "direct_bounced"; }
  [[nodiscard]] bool is_ahead() const { return std::string(GetParam()).ends_with("_ahead"); }
  [[nodiscard]] bool is_mpiio() const { return engine() == "mpiio"; }
  [[nodiscard]] std::string engine() const {
    const std::string name = GetParam();
    return name.substr(0, name.find('_'));
  }
  [[nodiscard]] SmallSave small_save(const std::filesystem::path& directory, std::uint64_t file_bytes,
                                     io::EngineOptions options = {}) {
    if (is_bounced()) options.bounce_buffer = bounce_buffer_.span();
    return {*communicator_, directory, file_bytes, std::move(options), {engine(), is_ahead() ? 2U : 0U}};
  }

  std::unique_ptr<comm::Communicator> communicator_ = comm::duplicate_mpi(MPI_COMM_WORLD);
  SharedTempDir directory_;
  base::AlignedBuffer bounce_buffer_{2 * io::kRequestBytes};  ///< room for two requests, so that others wait
};

struct Rule {
  std::string rule;
  std::string expected;  ///< part of the message; empty: the engine tolerates the fault
};

/// MPI-IO treats every short transfer as a failure; the other engines continue where the transfer ended.
std::string after_short(const std::string& operation, bool is_mpiio) {
  return is_mpiio ? "MPI reported success, but moved " + operation + " of" : "";
}

TEST_P(EngineFault, OfAnyKindInASaveReachesAllRanksAndTheNextSaveWorks) {
  const std::vector<Rule> rules = {
      {"open:errno=EACCES", "Permission denied"},          {"write:errno=EIO", "Input/output error"},
      {"write:errno=ENOSPC", "No space left on device"},   {"write:errno=EDQUOT:after=1", "Disk quota exceeded"},
      {"write:short=100", after_short("100", is_mpiio())}, {"fsync:errno=EIO", "Input/output error"},
      {"close:errno=EIO", "Input/output error"},
  };
  const SmallSave save = small_save(directory_.path(), 600'000);
  for (const int rank : ranks_to_fail()) {
    for (const Rule& rule : rules) {
      SCOPED_TRACE(rule.rule + " on rank " + std::to_string(rank));
      if (rule.expected.empty()) {
        os::set_faults(rule.rule + ":rank=" + std::to_string(rank));
        save.save();
        os::set_faults("");
        EXPECT_EQ(save.load(), save.total_bytes());
      } else {
        const std::string text = error_under(rule.rule, rank, [&] { save.save(); });
        EXPECT_THAT(text, HasSubstr(rule.expected));
        EXPECT_THAT(text, HasSubstr(".safetensors"));
      }
      save.remove_files();
      save.save();
      EXPECT_EQ(save.load(), save.total_bytes());
      save.remove_files();
    }
  }
}

TEST_P(EngineFault, WhenFilesAreMadeReachesAllRanks) {
  const SmallSave save = small_save(directory_.path(), 600'000);
  const std::string text = error_under("truncate:errno=ENOSPC", 0, [&] { save.save(); });  // rank 0 makes file 0
  EXPECT_THAT(text, HasSubstr("No space left on device"));
  EXPECT_THAT(text, HasSubstr("model-0.safetensors"));
}

TEST_P(EngineFault, OfAnyKindInALoadReachesAllRanksAndTheNextLoadWorks) {
  const std::vector<Rule> rules = {
      {"open:errno=EACCES", "Permission denied"},
      {"read:errno=EIO", "Input/output error"},
      {"read:errno=EIO:after=1", "Input/output error"},
      {"read:short=10", after_short("10", is_mpiio())},
  };
  const SmallSave save = small_save(directory_.path(), 600'000);
  save.save();
  for (const int rank : ranks_to_fail()) {
    for (const Rule& rule : rules) {
      SCOPED_TRACE(rule.rule + " on rank " + std::to_string(rank));
      if (rule.expected.empty()) {
        os::set_faults(rule.rule + ":rank=" + std::to_string(rank));
        EXPECT_EQ(save.load(), save.total_bytes());
        os::set_faults("");
        continue;
      }
      const std::string text = error_under(rule.rule, rank, [&] { static_cast<void>(save.load()); });
      EXPECT_THAT(text, HasSubstr(rule.expected));
      EXPECT_THAT(text, HasSubstr(".safetensors"));
      EXPECT_EQ(save.load(), save.total_bytes());
    }
  }
}

TEST_P(EngineFault, InterruptedCallsGoOn) {
  const SmallSave save = small_save(directory_.path(), 600'000);
  os::set_faults("write:errno=EINTR;read:errno=EINTR;fsync:errno=EINTR");
  save.save();
  EXPECT_EQ(save.load(), save.total_bytes());
}

constexpr std::uint64_t kMiB = 1ULL << 20;

TEST_P(EngineFault, AFullFileSystemIsFoundBeforeDataMoves) {
  ScratchMount mount(*communicator_, directory_.path(), 16 * kMiB);
  if (!mount.problem().empty()) GTEST_SKIP() << mount.problem();
  const SmallSave save = small_save(mount.path(), 8 * kMiB);
  os::set_faults("write:errno=EIO");  // no write must be attempted
  const std::string text = common_error(*communicator_, ErrorKind::kIo, [&] { save.save(); });
  EXPECT_THAT(text, HasSubstr("No space left on device"));
  EXPECT_THAT(text, HasSubstr("model-"));
}

TEST_P(EngineFault, AFullFileSystemIsFoundByTheWrite) {
  ScratchMount mount(*communicator_, directory_.path(), 16 * kMiB);
  if (!mount.problem().empty()) GTEST_SKIP() << mount.problem();
  io::EngineOptions options;
  options.reserve_space = false;
  const SmallSave save = small_save(mount.path(), 8 * kMiB, options);
  const auto begin = std::chrono::steady_clock::now();
  const std::string text = common_error(*communicator_, ErrorKind::kIo, [&] { save.save(); });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
  EXPECT_THAT(text, HasSubstr("model-"));
  EXPECT_THAT(text, HasSubstr(is_mpiio() ? "cannot write" : "write of"));
  EXPECT_THAT(text, HasSubstr(is_mpiio() ? "(tmpfs) has" : "No space left on device"));

  save.remove_files();  // releases the space of the removed files
  EXPECT_GT(os::file_system_of(mount.path()).free_bytes, 15 * kMiB);
  communicator_->barrier();
  const SmallSave smaller = small_save(mount.path(), 4 * kMiB, options);
  smaller.save();
  EXPECT_EQ(smaller.load(), smaller.total_bytes());
}

TEST_P(EngineFault, AFailureThatOnlyTheFsyncSees) {
  ScratchMount mount(*communicator_, directory_.path(), 24 * kMiB);
  if (mount.problem().empty()) mount.stack_lying_ext4(200 * kMiB);
  if (!mount.problem().empty()) GTEST_SKIP() << mount.problem();
  const SmallSave save = small_save(mount.path(), 16 * kMiB);
  const std::string text = common_error(*communicator_, ErrorKind::kIo, [&] { save.save(); });
  // Without the page cache the write itself may fail.
  if (!std::string(GetParam()).starts_with("direct")) {
    EXPECT_THAT(text, HasSubstr("sync"));
  }
  EXPECT_THAT(text, testing::AnyOf(HasSubstr("sync"), HasSubstr("write of")));
  EXPECT_THAT(text, HasSubstr("model-"));
}

INSTANTIATE_TEST_SUITE_P(Engine, EngineFault,
                         testing::Values("mpiio", "mpiio_ahead", "direct", "direct_ahead", "direct_bounced", "posix"),
                         [](const auto& param) { return std::string(param.param); });

/// Engine direct if O_DIRECT or io_uring is refused: one warning with the reason, and the same bytes.
class DirectRefused : public testing::TestWithParam<std::pair<const char*, const char*>> {
 protected:
  ~DirectRefused() override { os::set_faults(""); }
};

TEST_P(DirectRefused, GoesThroughThePageCacheAndSaysSo) {
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  const SharedTempDir directory;
  os::set_fault_rank(communicator->rank());
  const SmallSave save(*communicator, directory.path(), 600'000, {}, {"direct"});
  base::AlignedBuffer bounce_buffer(2 * io::kRequestBytes);
  io::EngineOptions bounced;
  bounced.bounce_buffer = bounce_buffer.span();
  const SmallSave bounced_save(*communicator, directory.path(), 600'000, bounced, {"direct"});
  os::set_faults(GetParam().first);
  testing::internal::CaptureStderr();
  save.save();
  EXPECT_EQ(bounced_save.load(), save.total_bytes());
  save.remove_files();
  bounced_save.save();
  EXPECT_EQ(save.load(), save.total_bytes());
  const std::string said = testing::internal::GetCapturedStderr();
  // A file system in memory refuses O_DIRECT first, and each reason is logged only once.
  if (communicator->rank() == 0 && !os::file_system_of(directory.path()).lives_in_memory()) {
    EXPECT_THAT(said, HasSubstr(GetParam().second));
    EXPECT_EQ(said.find("page cache"), said.rfind("page cache")) << said;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, DirectRefused,
                         testing::Values(std::pair{"os.direct:errno=EACCES", "O_DIRECT is refused"},
                                         std::pair{"os.io_uring:errno=EACCES",
                                                   "io_uring is refused: Permission denied"}),
                         [](const auto& param) { return std::string(param.index == 0 ? "Direct" : "IoUring"); });

}  // namespace
}  // namespace cairn::test
