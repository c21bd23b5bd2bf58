// Every step of a save is made to fail, on rank 0 and on another rank: no rank hangs,
// the previous checkpoint stays intact, nothing incomplete is visible, and the next save works.
#include <gtest/gtest.h>

#include <set>

#include "cairn/error.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "root/root_state.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

constexpr int kRanks = 4;

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

/// Required parts of a fault rule's error: the failed action, the reason, and the rank.
struct Expected {
  std::string what;
  std::string why = "Input/output error";
  int rank = 0;
  std::string means = "";  ///< the consequence; only for failures after the rename
};

/// Expects the rule's error, no leftovers unless the save became visible, whole checkpoints, and later saves that work.
void expect_failed_save_harms_nothing(const std::string& rule, bool may_be_visible, const Expected& expected) {
  SCOPED_TRACE(rule);
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, kRanks);
  const auto before = data_files(root / "checkpoint-1");
  {
    const Faults faults(rule);
    const std::string rank = "(rank " + std::to_string(expected.rank) + ")";
    expect_error(ErrorKind::kIo, [&] { save_simulated(root.path(), 2, Cut::kGrid, kRanks); },
                 {expected.what, "checkpoint-2", expected.why, rank, expected.means});
    EXPECT_EQ(may_be_visible, !expected.means.empty());
  }
  std::set<std::string> left = {".cairn", "checkpoint-1", root::kLatestFile};
  if (may_be_visible) left.insert("checkpoint-2");
  EXPECT_EQ(names_in(root.path()), left);
  EXPECT_EQ(before, data_files(root / "checkpoint-1"));
  expect_loads(root / "checkpoint-1", 1, Cut::kRows, 3);
  if (may_be_visible) expect_loads(root / "checkpoint-2", 2, Cut::kRows, 3);
  EXPECT_EQ(root::newest_step(root.path()), may_be_visible ? 2 : 1);
  EXPECT_EQ(read_file(root / root::kLatestFile), "1\n") << "the pointer file is written last";

  Options options = small_options();
  options.overwrite = true;
  save_simulated(root.path(), 2, Cut::kGrid, kRanks, options);
  save_simulated(root.path(), 3, Cut::kGrid, kRanks);
  expect_loads(root / "checkpoint-2", 2, Cut::kRows, 3);
  expect_loads(root / "checkpoint-3", 3, Cut::kRows, 3);
  left.insert({"checkpoint-2", "checkpoint-3"});
  EXPECT_EQ(names_in(root.path()), left);
  EXPECT_EQ(read_file(root / root::kLatestFile), "3\n");
}

class CommitStep : public testing::TestWithParam<int> {};

TEST_P(CommitStep, NamedStepsBeforeTheRename) {
  for (const std::string step : {"begin", "carry", "blocks", "manifest", "sync", "rename"}) {
    expect_failed_save_harms_nothing("commit." + step + ":rank=" + std::to_string(GetParam()), false,
                                     {"step commit." + step + " on", "Input/output error", GetParam()});
  }
}

TEST_P(CommitStep, NamedStepsAfterTheRename) {
  const std::vector<std::pair<std::string, std::string>> steps = {
      {"publish", "it may not survive a power failure"},
      {"latest", "the file that names the latest could not be replaced"}};
  for (const auto& [step, means] : steps) {
    expect_failed_save_harms_nothing(
        "commit." + step + ":rank=" + std::to_string(GetParam()), true,
        {"step commit." + step + " on", "Input/output error", GetParam(), "is complete, but " + means});
  }
}

TEST_P(CommitStep, WritingTheData) {
  const int rank = GetParam();
  const std::string of_data = ":path=.safetensors:rank=" + std::to_string(rank);
  const std::vector<std::pair<std::string, Expected>> rules = {
      {"open", {"open for writing of", "Input/output error", rank}},
      {"open:after=3", {"open for writing of", "Input/output error", rank}},
      {"truncate:errno=ENOSPC", {"setting the size", "No space left on device", rank}},
      {"write", {"write of", "Input/output error", rank}},
      {"write:errno=ENOSPC", {"write of", "No space left on device", rank}},
      {"write:after=2", {"write of", "Input/output error", rank}},
      {"fsync", {"fsync of", "Input/output error", rank}},
      {"close", {"close of", "Input/output error", rank}}};
  for (const auto& [rule, expected] : rules) expect_failed_save_harms_nothing(rule + of_data, false, expected);
}

INSTANTIATE_TEST_SUITE_P(OnRank, CommitStep, testing::Values(0, 2));

TEST(CommitFault, OwnFilesOnRankZero) {
  const std::vector<std::pair<std::string, Expected>> before = {
      {"open:path=cairn.json", {"open for writing of"}},
      {"write:path=cairn.json", {"write of"}},
      {"fsync:path=cairn.json", {"fsync of"}},
      {"close:path=cairn.json", {"close of"}},
      {"write:path=cairn.blocks", {"write of"}},
      {"fsync:path=cairn.blocks:errno=ENOSPC", {"fsync of", "No space left on device"}},
      {"write:path=model.safetensors.index.json", {"write of"}},
      {"mkdir:path=/checkpoint-2.", {"creation of directory"}},
      {"rename:path=checkpoint-2", {"rename of"}}};
  for (const auto& [rule, expected] : before) expect_failed_save_harms_nothing(rule, false, expected);
}

TEST(CommitFault, AShortWriteIsContinued) {
  const TempDir root;
  {
    const Faults faults("write:path=.safetensors:short=100:times=3");
    save_simulated(root.path(), 1, Cut::kMixed, kRanks);
  }
  expect_loads(root / "checkpoint-1", 1, Cut::kRows, 3);
}

TEST(CommitFault, LeftOversOfACrashAreRemovedAndNeverRead) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, kRanks);
  fs::copy(root / "checkpoint-1", root / "checkpoint-7.0123456789abcdef.partial");
  fs::create_directory(root / "checkpoint-8.0123456789abcdef.partial");
  for (const char* name : {"checkpoint-8.partial", "checkpoint-1.replaced"}) fs::create_directory(root / name);
  fs::create_directory(root / "someone-elses.partial");
  EXPECT_EQ(root::newest_step(root.path()), 1);
  try {
    opening::open_here(root / "checkpoint-7.0123456789abcdef.partial");
    ADD_FAILURE() << "a partial directory was opened";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound) << error.what();
  }
  save_simulated(root.path(), 2, Cut::kMixed, kRanks);
  EXPECT_FALSE(fs::exists(root / "checkpoint-7.0123456789abcdef.partial"));
  EXPECT_FALSE(fs::exists(root / "checkpoint-8.0123456789abcdef.partial"));
  EXPECT_TRUE(fs::exists(root / "checkpoint-8.partial"));  // without a nonce, so not made by Cairn
  EXPECT_TRUE(fs::exists(root / "checkpoint-1.replaced"));
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

TEST(CommitFault, NothingOfTheUserIsRemoved) {
  const TempDir root;
  const std::set<std::string> users = {"X.partial",
                                       "X.replaced",
                                       "checkpoint-x.partial",
                                       "checkpoint-07.partial",
                                       "checkpoint-7.partial.bak",
                                       "checkpoint-7.mine.partial",
                                       "checkpoint-7.0123456789ABCDEF.partial",
                                       "checkpoint-7.0123456789abcde.partial",
                                       "checkpoint-7.replaced.old",
                                       "other.0123456789abcdef.partial",
                                       "latest_checkpointed_iteration.txt.tmp",
                                       "notes.0123456789abcdef.tmp"};
  for (const std::string& name : users) {
    fs::create_directory(root / name);
    write_file(root / name / "file", name);
  }
  save_simulated(root.path(), 7, Cut::kMixed, kRanks);
  Options options = small_options();
  options.overwrite = true;
  save_simulated(root.path(), 7, Cut::kMixed, kRanks, options);
  auto expected = users;
  expected.insert({"checkpoint-7", root::kLatestFile, ".cairn"});
  EXPECT_EQ(names_in(root.path()), expected);
  for (const std::string& name : users) EXPECT_EQ(read_file(root / name / "file"), name);
}

/// The message is about the file, and does not say that the checkpoint may be lost.
TEST(CommitFault, AFileThatNamesTheLatestWhichCannotBeReplaced) {
  const TempDir root;
  fs::create_directory(root / root::kLatestFile);
  expect_error(ErrorKind::kIo, [&] { save_simulated(root.path(), 1, Cut::kGrid, kRanks); },
               {"checkpoint-1' is complete, but the file that names the latest could not be replaced: rename of",
                "Is a directory; loads by Cairn find the checkpoint all the same", "and the next save replaces it"});
  EXPECT_EQ(root::newest_step(root.path()), 1U);
  expect_loads(root / "checkpoint-1", 1, Cut::kRows, 3);
  fs::remove(root / root::kLatestFile);
  save_simulated(root.path(), 2, Cut::kGrid, kRanks);
  EXPECT_EQ(read_file(root / root::kLatestFile), "2\n");
}

TEST(CommitFault, AFileThatNamesTheLatestWhichMayBeLost) {
  for (const char* rule : {"commit.noted", "rename:path=state.json"}) {
    SCOPED_TRACE(rule);
    const TempDir root;
    save_simulated(root.path(), 1, Cut::kGrid, kRanks);
    const Faults faults(rule);
    expect_error(ErrorKind::kIo, [&] { save_simulated(root.path(), 2, Cut::kGrid, kRanks); },
                 {"checkpoint-2' is complete, but the file that names it the latest may not survive a power failure"});
    EXPECT_EQ(read_file(root / root::kLatestFile), "2\n");
  }
}

TEST(CommitFault, EveryStepOfAnOverwriteLeavesTheOldOrTheNewOneLoadable) {
  struct Case {
    const char* rule;
    int version;  ///< loaded afterwards; 1 is the old one
  };
  const std::string no_exchange = "exchange:errno=EINVAL;";
  const std::vector<Case> everywhere = {{"commit.begin", 1},         {"commit.sync", 1},
                                        {"commit.rename.looked", 1}, {"commit.publish", 2},
                                        {"commit.latest.looked", 2}, {"unlink:path=checkpoint-1.", 2}};
  const std::vector<Case> in_one_step = {{"exchange:errno=EIO", 1}};
  const std::vector<Case> in_two_steps = {{"commit.replace.looked", 1},
                                          {"rename:path=.replaced", 1},
                                          {"commit.replaced", 1},
                                          {"rename:path=/checkpoint-1:after=1", 1},  // moving it back fails, too
                                          {"rename:path=/checkpoint-1:after=1:times=1", 1}};
  std::vector<std::pair<std::string, int>> cases;
  for (const Case& c : everywhere) cases.emplace_back(c.rule, c.version);
  for (const Case& c : everywhere) cases.emplace_back(no_exchange + c.rule, c.version);
  for (const Case& c : in_one_step) cases.emplace_back(c.rule, c.version);
  for (const Case& c : in_two_steps) cases.emplace_back(no_exchange + c.rule, c.version);
  for (const auto& [rules, version] : cases) {
    SCOPED_TRACE(rules);
    const TempDir root;
    save_simulated(root.path(), 1, Cut::kMixed, kRanks);
    Options options = small_options();
    options.overwrite = true;
    bool has_failed = false;
    {
      const Faults faults(rules);
      const auto lease = lease_of(root.path(), options);
      try {
        save_simulated_by(*lease, 1, Cut::kRows, kRanks, options, 2);
      } catch (const Error& error) {
        has_failed = true;
        EXPECT_EQ(error.kind(), ErrorKind::kIo) << error.what();
      }
    }
    EXPECT_EQ(has_failed, rules.find("unlink") == std::string::npos);
    if (rules.ends_with("commit.replaced")) {
      EXPECT_TRUE(fs::exists(root / "checkpoint-1" / format::kManifestFile)) << "the old one has its name again";
    }
    EXPECT_EQ(root::newest_step(root.path()), 1U);
    expect_loads(root / "checkpoint-1", version, Cut::kRows, 3);
    save_simulated(root.path(), 3, Cut::kMixed, kRanks);
    expect_loads(root / "checkpoint-1", version, Cut::kRows, 3);
    EXPECT_EQ(names_in(root.path()),
              (std::set<std::string>{"checkpoint-1", "checkpoint-3", root::kLatestFile, ".cairn"}));
  }
}

TEST(CommitFault, AReplacedCheckpointIsReadWhereItWaits) {
  const TempDir root;
  save_simulated(root.path(), 1, Cut::kMixed, kRanks);
  save_simulated(root.path(), 2, Cut::kMixed, kRanks);
  const fs::path container = root::replaced_directory(root / "checkpoint-1", "0123456789abcdef");
  fs::create_directory(container);
  fs::rename(root / "checkpoint-1", container / "checkpoint-1");  // as if killed after the first rename
  expect_loads(root / "checkpoint-1", 1, Cut::kRows, 3);
  EXPECT_EQ(opening::open_here(root / "checkpoint-1").directory, container / "checkpoint-1");
  const auto entries = root::list_root(root.path());
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].step, 1U);
  EXPECT_TRUE(entries[0].is_complete());
  fs::remove_all(root / "checkpoint-2");
  EXPECT_EQ(root::newest_step(root.path()), 1U);
  // An incomplete directory named checkpoint-1 does not hide the replaced checkpoint.
  fs::create_directory(root / "checkpoint-1");
  write_file(root / "checkpoint-1" / "cairn.json", "{");
  expect_loads(root / "checkpoint-1", 1, Cut::kRows, 3);
  EXPECT_EQ(root::newest_step(root.path()), 1U);
  fs::remove_all(root / "checkpoint-1");
  save_simulated(root.path(), 3, Cut::kMixed, kRanks);
  EXPECT_FALSE(fs::exists(container));
  EXPECT_EQ(opening::open_here(root / "checkpoint-1").directory, root / "checkpoint-1");
  expect_loads(root / "checkpoint-1", 1, Cut::kRows, 3);
}

}  // namespace
}  // namespace cairn::test
