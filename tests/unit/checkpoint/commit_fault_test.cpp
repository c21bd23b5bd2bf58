// Every step of a save is made to fail, on rank 0 and on another: no hang, the checkpoint before is whole, nothing half
// made is visible, and the next save works.
#include <gtest/gtest.h>

#include "cairn/error.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 4;

struct FaultsOff {
  ~FaultsOff() { os::set_faults(""); }
};

void expect_failed_save_harms_nothing(const std::string& rule, bool may_be_visible) {
  SCOPED_TRACE(rule);
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, kRanks);
  {
    const FaultsOff off;
    os::set_faults(rule);
    try {
      save_simulated(root.path(), 2, Cut::kGrid, kRanks);
      ADD_FAILURE() << "the fault was not met";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kIo) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  expect_loads(root / "checkpoint-1", 1, Cut::kRows, 3);
  EXPECT_EQ(fs::exists(root / "checkpoint-2"), may_be_visible);
  if (may_be_visible) expect_loads(root / "checkpoint-2", 2, Cut::kRows, 3);
  EXPECT_EQ(checkpoint::newest_complete(root.path()), may_be_visible ? 2 : 1);

  Options options = small_options();
  options.overwrite = true;
  save_simulated(root.path(), 2, Cut::kGrid, kRanks, options);
  save_simulated(root.path(), 3, Cut::kGrid, kRanks);
  expect_loads(root / "checkpoint-2", 2, Cut::kRows, 3);
  expect_loads(root / "checkpoint-3", 3, Cut::kRows, 3);
  EXPECT_TRUE(checkpoint::partial_directories(root.path()).empty());
  EXPECT_EQ(read_file(root / checkpoint::kLatestFile), "3\n");
}

class CommitStep : public testing::TestWithParam<int> {};

TEST_P(CommitStep, NamedStepsBeforeTheRename) {
  for (const char* step : {"begin", "carry", "blocks", "manifest", "sync", "rename"}) {
    expect_failed_save_harms_nothing("commit." + std::string(step) + ":rank=" + std::to_string(GetParam()), false);
  }
}

TEST_P(CommitStep, NamedStepsAfterTheRename) {
  for (const char* step : {"publish", "latest"}) {
    expect_failed_save_harms_nothing("commit." + std::string(step) + ":rank=" + std::to_string(GetParam()), true);
  }
}

TEST_P(CommitStep, WritingTheData) {
  const std::string rank = ":rank=" + std::to_string(GetParam());
  for (const std::string& rule :
       {"write" + rank + ":path=.safetensors", "write" + rank + ":path=.safetensors:errno=ENOSPC",
        "write" + rank + ":path=.safetensors:after=2", "open" + rank + ":path=.safetensors",
        "fsync" + rank + ":path=.safetensors"}) {
    expect_failed_save_harms_nothing(rule, false);
  }
}

INSTANTIATE_TEST_SUITE_P(OnRank, CommitStep, testing::Values(0, 2));

TEST(CommitFault, OwnFilesOnRankZero) {
  for (const char* rule :
       {"open:path=cairn.json", "write:path=cairn.json", "fsync:path=cairn.json", "write:path=cairn.blocks",
        "fsync:path=cairn.blocks:errno=ENOSPC", "mkdir:path=checkpoint-2.partial", "rename:path=checkpoint-2"}) {
    expect_failed_save_harms_nothing(rule, false);
  }
}

TEST(CommitFault, AShortWriteIsContinued) {
  const TempDir root;
  const FaultsOff off;
  os::set_faults("write:path=.safetensors:short=100:times=3");
  save_simulated(root.path(), 1, Cut::kMixed, kRanks);
  os::set_faults("");
  expect_loads(root / "checkpoint-1", 1, Cut::kRows, 3);
}

TEST(CommitFault, LeftOversOfACrashAreRemovedAndNeverRead) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, kRanks);
  fs::copy(root / "checkpoint-1", root / "checkpoint-7.partial");
  fs::create_directory(root / "checkpoint-8.partial");
  fs::create_directory(root / "someone-elses.partial");
  EXPECT_EQ(checkpoint::newest_complete(root.path()), 1);
  try {
    checkpoint::open_here(root / "checkpoint-7.partial");
    ADD_FAILURE() << "a partial directory was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound) << error.what();
  }
  save_simulated(root.path(), 2, Cut::kMixed, kRanks);
  EXPECT_FALSE(fs::exists(root / "checkpoint-7.partial"));
  EXPECT_FALSE(fs::exists(root / "checkpoint-8.partial"));
  EXPECT_TRUE(fs::exists(root / "someone-elses.partial"));
}

TEST(CommitFault, AnExistingStepIsKeptUnlessOverwritten) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, kRanks);
  const auto before = data_files(root / "checkpoint-1");
  try {
    save_simulated(root.path(), 1, Cut::kRows, 2);
    ADD_FAILURE() << "an existing checkpoint was overwritten";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.what();
  }
  EXPECT_EQ(before, data_files(root / "checkpoint-1"));
}

TEST(CommitFault, AReplacementThatWasCutOffIsRolledBack) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, kRanks);
  fs::rename(root / "checkpoint-1", root / "checkpoint-1.replaced");  // where a crash between two renames leaves it
  Options options = small_options();
  options.overwrite = true;
  {
    const FaultsOff off;
    os::set_faults("commit.manifest");
    EXPECT_THROW(save_simulated(root.path(), 1, Cut::kMixed, kRanks, options), Error);
  }
  expect_loads(root / "checkpoint-1", 1, Cut::kRows, 3);
}

}  // namespace
}  // namespace cairn::test
