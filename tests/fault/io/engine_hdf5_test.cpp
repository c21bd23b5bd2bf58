// Failures of one rank in engine "hdf5": every rank gets the same error soon, and the next save works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>

#include "comm/mpi.hpp"
#include "hdf5/library.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "scratch_mount.hpp"
#include "shared_temp_dir.hpp"
#include "small_save.hpp"

namespace cairn::test {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMiB = 1ULL << 20;

class EngineHdf5 : public testing::Test {
 protected:
  void SetUp() override {
    if (!hdf5::is_available()) GTEST_SKIP() << "this build has no HDF5";
    os::set_fault_rank(communicator_->rank());
  }
  ~EngineHdf5() override { os::set_faults(""); }

  [[nodiscard]] SmallSave save_in(const std::filesystem::path& directory, std::uint64_t file_bytes,
                                  bool reserve_space = true) const {
    return SmallSave(*communicator_, directory, file_bytes, {{}, reserve_space}, {"hdf5"});
  }

  /// The common error of `work`, which must come soon.
  std::string soon_error(const std::function<void()>& work) {
    const auto begin = std::chrono::steady_clock::now();
    std::string text = common_error(*communicator_, ErrorKind::kIo, work);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kPatience);
    return text;
  }
  std::string error_under(const std::string& rules, int rank, const std::function<void()>& work) {
    os::set_faults(rules + ":rank=" + std::to_string(rank));
    std::string text = soon_error(work);
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

  std::unique_ptr<comm::Communicator> communicator_ = comm::duplicate_mpi(MPI_COMM_WORLD);
  SharedTempDir directory_;
};

struct Rule {
  const char* rule;
  const char* expected;
};

TEST_F(EngineHdf5, FailuresInASaveReachAllRanksAndTheNextSaveWorks) {
  constexpr Rule kRules[] = {
      {"open:errno=EACCES", "Permission denied"},        {"write:errno=EIO", "Input/output error"},
      {"write:errno=ENOSPC", "No space left on device"}, {"write:errno=EDQUOT:after=1", "Disk quota exceeded"},
      {"fsync:errno=EIO", "Input/output error"},         {"close:errno=EIO", "Input/output error"},
  };
  const SmallSave save = save_in(directory_.path(), 600'000);
  for (const int rank : ranks_to_fail()) {
    for (const Rule& rule : kRules) {
      SCOPED_TRACE(std::string(rule.rule) + " on rank " + std::to_string(rank));
      const std::string text = error_under(rule.rule, rank, [&] { save.save(); });
      EXPECT_THAT(text, HasSubstr(rule.expected));
      EXPECT_THAT(text, HasSubstr(".safetensors"));
      save.remove_files();
      save.save();
      EXPECT_EQ(save.load(), save.total_bytes());
      save.remove_files();
    }
  }
}

TEST_F(EngineHdf5, FailuresInALoadReachAllRanksAndTheNextLoadWorks) {
  constexpr Rule kRules[] = {
      {"open:errno=EACCES", "Permission denied"},
      {"read:errno=EIO", "Input/output error"},
      {"read:errno=EIO:after=1", "Input/output error"},
  };
  const SmallSave save = save_in(directory_.path(), 600'000);
  save.save();
  for (const int rank : ranks_to_fail()) {
    for (const Rule& rule : kRules) {
      SCOPED_TRACE(std::string(rule.rule) + " on rank " + std::to_string(rank));
      const std::string text = error_under(rule.rule, rank, [&] { static_cast<void>(save.load()); });
      EXPECT_THAT(text, HasSubstr(rule.expected));
      EXPECT_THAT(text, HasSubstr(".safetensors"));
      EXPECT_EQ(save.load(), save.total_bytes());
    }
  }
}

TEST_F(EngineHdf5, InterruptedAndShortCallsGoOn) {
  const SmallSave save = save_in(directory_.path(), 600'000);
  os::set_faults("write:errno=EINTR;read:errno=EINTR;fsync:errno=EINTR;write:short=100;read:short=10");
  save.save();
  EXPECT_EQ(save.load(), save.total_bytes());
}

TEST_F(EngineHdf5, AFullFileSystemIsFoundBeforeDataMoves) {
  ScratchMount mount(*communicator_, directory_.path(), 16 * kMiB);
  if (!mount.problem().empty()) GTEST_SKIP() << mount.problem();
  const SmallSave save = save_in(mount.path(), 8 * kMiB);
  os::set_faults("write:errno=EIO");  // no write must be tried
  const std::string text = soon_error([&] { save.save(); });
  EXPECT_THAT(text, HasSubstr("No space left on device"));
  EXPECT_THAT(text, HasSubstr("model-"));
}

TEST_F(EngineHdf5, AFullFileSystemIsFoundByTheWrite) {
  ScratchMount mount(*communicator_, directory_.path(), 16 * kMiB);
  if (!mount.problem().empty()) GTEST_SKIP() << mount.problem();
  const SmallSave save = save_in(mount.path(), 8 * kMiB, false);
  const std::string text = soon_error([&] { save.save(); });
  EXPECT_THAT(text, HasSubstr("through HDF5 failed"));
  EXPECT_THAT(text, HasSubstr("HDF5: "));
  EXPECT_THAT(text, HasSubstr("model-"));

  save.remove_files();  // nothing holds the space of the removed files
  EXPECT_GT(os::file_system_of(mount.path()).free_bytes, 15 * kMiB);
  communicator_->barrier();
  const SmallSave smaller = save_in(mount.path(), 4 * kMiB, false);
  smaller.save();
  EXPECT_EQ(smaller.load(), smaller.total_bytes());
}

TEST_F(EngineHdf5, AFailureThatOnlyTheFsyncSees) {
  ScratchMount mount(*communicator_, directory_.path(), 24 * kMiB);
  if (mount.problem().empty()) mount.stack_lying_ext4(200 * kMiB);
  if (!mount.problem().empty()) GTEST_SKIP() << mount.problem();
  const SmallSave save = save_in(mount.path(), 16 * kMiB);
  const std::string text = soon_error([&] { save.save(); });
  EXPECT_THAT(text, HasSubstr("fsync"));
  EXPECT_THAT(text, HasSubstr("model-"));
}

}  // namespace
}  // namespace cairn::test
