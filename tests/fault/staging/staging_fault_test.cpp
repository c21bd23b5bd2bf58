// Failures of one rank while a staging file is written or read: every rank soon gets the same error,
// no file and no leftovers remain, and the next attempt works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>

#include "cairn/staging.hpp"
#include "comm/mpi.hpp"
#include "engine_conformance.hpp"
#include "hdf5/library.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/system_calls.hpp"
#include "scratch_mount.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"

namespace cairn::test {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1ULL << 20;
constexpr std::chrono::seconds kPatience{300};

struct Rule {
  const char* rule;
  const char* expected;
};

class StagingFault : public testing::Test {
 protected:
  StagingFault() {
    options_.files.block_bytes = 4096;
    options_.limits.memory_budget_bytes = 64 << 10;
    options_.engine.name = "posix";
    state_.fill(1);
  }
  void SetUp() override {
    if (!hdf5::is_available()) GTEST_SKIP() << "this build has no HDF5";
  }
  ~StagingFault() override { os::set_faults(""); }

  void stage_it(const std::filesystem::path& file) { stage(MPI_COMM_WORLD, file, state_.sources(), options_); }

  void expect_good(const std::filesystem::path& file) {
    RankState loaded(small_state(), Cut::kMixed, communicator_->rank(), communicator_->size());
    load_from(MPI_COMM_WORLD, file, loaded.targets(), options_);
    EXPECT_EQ(loaded.matching_bytes(1), loaded.bytes());
  }

  /// The common error of `work`, which must come soon.
  std::string soon_error(ErrorKind kind, const std::function<void()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    std::string text = common_error(*communicator_, kind, work);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
    return text;
  }
  std::string error_under(const std::string& rules, int rank, const std::function<void()>& work) {
    os::set_faults(rules + ":rank=" + std::to_string(rank));
    std::string text = soon_error(ErrorKind::kIo, work);
    os::set_faults("");
    return text;
  }

  /// Names in the directory after all ranks are done.
  std::vector<std::string> names_in(const std::filesystem::path& directory) {
    communicator_->barrier();
    std::vector<std::string> names;
    for (const auto& entry : os::list_directory(directory)) names.push_back(entry.name);
    communicator_->barrier();
    return names;
  }
  [[nodiscard]] std::vector<int> ranks_to_fail() const {
    if (communicator_->size() == 1) return {0};
    return {0, communicator_->size() - 1};
  }

  std::unique_ptr<comm::Communicator> communicator_ = comm::duplicate_mpi(MPI_COMM_WORLD);
  SharedTempDir directory_;
  Options options_;
  RankState state_{small_state(), Cut::kRows, communicator_->rank(), communicator_->size()};
};

TEST_F(StagingFault, InAnyStepOfWritingLeavesNothing) {
  constexpr Rule kRules[] = {
      {"commit.begin:errno=EIO", "commit.begin"},
      {"stage.skeleton:errno=ENOSPC", "No space left on device"},
      {"open:path=skeleton:errno=EACCES", "Permission denied"},
      {"write:path=skeleton:errno=ENOSPC", "No space left on device"},
      {"read:path=skeleton:errno=EIO", "Input/output error"},
      {"read:path=skeleton:errno=EIO:after=1", "Input/output error"},
      {"open:errno=EACCES:path=.partial/state.h5", "Permission denied"},
      {"write:errno=EIO", "Input/output error"},
      {"write:errno=ENOSPC:after=2", "No space left on device"},
      {"fsync:errno=EIO", "Input/output error"},
      {"stage.rename:errno=EIO", "stage.rename"},
  };
  const std::filesystem::path file = directory_ / "state.h5";
  for (const int rank : ranks_to_fail()) {
    for (const Rule& rule : kRules) {
      SCOPED_TRACE(std::string(rule.rule) + " on rank " + std::to_string(rank));
      if (rank != 0 && std::string_view(rule.rule).find("skeleton:") != std::string_view::npos) continue;  // for rank 0
      EXPECT_THAT(error_under(rule.rule, rank, [&] { stage_it(file); }), HasSubstr(rule.expected));
      EXPECT_THAT(names_in(directory_.path()), testing::IsEmpty());
    }
  }
  stage_it(file);
  expect_good(file);
  EXPECT_THAT(names_in(directory_.path()), testing::ElementsAre("state.h5"));
}

TEST_F(StagingFault, WithEveryEngineLeavesNothing) {
  const std::filesystem::path file = directory_ / "state.h5";
  for (const char* engine : {"mpiio", "direct", "posix"}) {
    options_.engine.name = engine;
    for (const int rank : ranks_to_fail()) {
      SCOPED_TRACE(std::string(engine) + " on rank " + std::to_string(rank));
      error_under("write:errno=EIO", rank, [&] { stage_it(file); });
      EXPECT_THAT(names_in(directory_.path()), testing::IsEmpty());
    }
    stage_it(file);
    expect_good(file);
    communicator_->barrier();
    if (communicator_->rank() == 0) os::remove_tree(file);
  }
}

TEST_F(StagingFault, AnOlderFileStaysWhenItsReplacementFails) {
  const std::filesystem::path file = directory_ / "state.h5";
  stage_it(file);
  options_.overwrite = true;
  state_.fill(2);
  for (const int rank : ranks_to_fail()) {
    for (const char* rule : {"write:errno=EIO", "fsync:errno=EIO", "stage.rename:errno=EIO", "rename:errno=EIO"}) {
      if (std::string_view(rule).starts_with("rename") && rank != 0) continue;  // only rank 0 renames
      error_under(rule, rank, [&] { stage_it(file); });
      EXPECT_THAT(names_in(directory_.path()), testing::ElementsAre("state.h5"));
    }
  }
  expect_good(file);
}

TEST_F(StagingFault, AfterTheRenameSaysThatTheFileIsComplete) {
  const std::filesystem::path file = directory_ / "state.h5";
  for (const int rank : ranks_to_fail()) {
    options_.overwrite = true;
    EXPECT_THAT(error_under("stage.publish:errno=EIO", rank, [&] { stage_it(file); }),
                HasSubstr("is complete, but it may not survive a power failure"));
    expect_good(file);
    EXPECT_THAT(names_in(directory_.path()), testing::ElementsAre("state.h5"));
  }
}

TEST_F(StagingFault, TheNameIsSyncedAfterTheRename) {
  const std::filesystem::path file = directory_ / "state.h5";
  os::Recording recording;
  stage_it(file);
  const auto operations = recording.take();
  if (communicator_->rank() != 0) return;
  const auto is = [&](const char* name, const std::filesystem::path& path) {
    return [=](const os::Operation& one) { return one.name == name && one.path == path; };
  };
  const auto renamed = std::ranges::find_if(operations, is("rename", file));
  ASSERT_NE(renamed, operations.end());
  EXPECT_TRUE(std::any_of(renamed, operations.end(), is("fsync", directory_.path())));
}

TEST_F(StagingFault, InReadingReachesAllRanks) {
  const std::filesystem::path file = directory_ / "state.h5";
  stage_it(file);
  for (const int rank : ranks_to_fail()) {
    for (const Rule& rule : {Rule{"read:errno=EIO:path=state.h5:after=1", "Input/output error"},
                             Rule{"read:errno=EIO:path=state.h5:after=9", "Input/output error"}}) {
      SCOPED_TRACE(std::string(rule.rule) + " on rank " + std::to_string(rank));
      RankState loaded(small_state(), Cut::kMixed, communicator_->rank(), communicator_->size());
      const std::string text =
          error_under(rule.rule, rank, [&] { load_from(MPI_COMM_WORLD, file, loaded.targets(), options_); });
      EXPECT_THAT(text, HasSubstr(rule.expected));
      EXPECT_THAT(text, HasSubstr("state.h5"));
      expect_good(file);
    }
  }
}

TEST_F(StagingFault, AFullFileSystem) {
  ScratchMount mount(*communicator_, directory_.path(), 2 * kMiB);
  if (!mount.problem().empty()) GTEST_SKIP() << mount.problem();
  const std::filesystem::path file = mount.path() / "state.h5";
  std::vector<std::byte> ballast;
  // Room for no metadata, for the metadata only, and for a part of the tensors.
  for (const std::uint64_t room_bytes : {std::uint64_t{0}, std::uint64_t{16} << 10, std::uint64_t{300} << 10}) {
    SCOPED_TRACE(room_bytes);
    if (communicator_->rank() == 0) {
      os::File filler(mount.path() / "ballast", os::OpenMode::kCreateNew);
      const std::uint64_t bytes = os::file_system_of(mount.path()).free_bytes - room_bytes;
      ballast.resize(bytes);
      filler.write_at(ballast, 0);
    }
    communicator_->barrier();
    soon_error(ErrorKind::kIo, [&] { stage_it(file); });
    EXPECT_THAT(names_in(mount.path()), testing::ElementsAre("ballast"));
    if (communicator_->rank() == 0) os::remove_tree(mount.path() / "ballast");
    communicator_->barrier();
  }
  stage_it(file);
  expect_good(file);
}

}  // namespace
}  // namespace cairn::test
