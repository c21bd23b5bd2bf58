// Repairs: every kind of damage, with and without other copies; failures and endings at each step; other savers.
#include "cairn/repair.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cairn/error.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "format/blocks.hpp"
#include "format/manifest.hpp"
#include "root/commit.hpp"
#include "root/lease_folder.hpp"
#include "root/root_state.hpp"
#include "root/run_log.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

fs::path directory(const TempDir& root, std::uint64_t step) { return root::checkpoint_directory(root.path(), step); }

/// Saves the steps as one life. Steps with the same version have the same tensors.
void save_all(const TempDir& root, const std::vector<std::uint64_t>& steps, int version) {
  const auto lease = lease_of(root.path(), small_options());
  std::uint64_t saves = 0;
  for (const std::uint64_t step : steps) {
    save_simulated_by(*lease, step, Cut::kRows, 1, small_options(), version, {}, saves++);
  }
}

/// Every file below, with its bytes.
std::map<std::string, std::string> snapshot(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[entry.path().lexically_relative(folder)] = read_file(entry.path());
  }
  return files;
}

void flip(const fs::path& path, std::uint64_t offset) {
  std::string bytes = read_file(path);
  bytes.at(offset) = static_cast<char>(bytes.at(offset) ^ 0x10);
  write_file(path, bytes);
}

/// The first data file of several blocks.
fs::path large_file(const fs::path& checkpoint) {
  const auto manifest = format::parse_manifest(read_file(checkpoint / "cairn.json"), "cairn.json");
  for (const format::ManifestFile& file : manifest.data_files) {
    if (file.size_bytes > 5 * manifest.block_bytes) return checkpoint / file.name;
  }
  throw std::logic_error("there is no such file");
}

struct Damage {
  const char* name;
  void (*make)(const fs::path& checkpoint);
  bool needs_copy;  ///< nothing within the checkpoint has the bytes
};

const Damage kDamages[] = {
    {"a_block", [](const fs::path& at) { flip(large_file(at), 4096 * 3 + 5); }, true},
    {"the_header", [](const fs::path& at) { flip(large_file(at), 20); }, true},
    {"two_blocks",
     [](const fs::path& at) {
       flip(large_file(at), 4096 * 2);
       flip(large_file(at), fs::file_size(large_file(at)) - 1);
     },
     true},
    {"a_cut_file", [](const fs::path& at) { fs::resize_file(large_file(at), 5000); }, true},
    {"an_empty_file", [](const fs::path& at) { fs::resize_file(large_file(at), 0); }, true},
    {"a_missing_file", [](const fs::path& at) { fs::remove(large_file(at)); }, true},
    {"a_longer_file", [](const fs::path& at) { write_file(large_file(at), read_file(large_file(at)) + "more"); },
     false},
    {"a_missing_index", [](const fs::path& at) { fs::remove(at / "model.safetensors.index.json"); }, false},
    {"a_damaged_index", [](const fs::path& at) { flip(at / "model.safetensors.index.json", 30); }, false},
    {"missing_checksums", [](const fs::path& at) { fs::remove(at / "cairn.blocks"); }, false},
    {"damaged_checksums", [](const fs::path& at) { flip(at / "cairn.blocks", 60); }, false},
    {"missing_checksums_and_a_block",
     [](const fs::path& at) {
       fs::remove(at / "cairn.blocks");
       flip(large_file(at), 4096 * 3 + 5);
     },
     true},
    {"a_missing_manifest", [](const fs::path& at) { fs::remove(at / "cairn.json"); }, true},
    {"a_damaged_manifest", [](const fs::path& at) { flip(at / "cairn.json", 40); }, true},
};

class Damaged : public testing::TestWithParam<Damage> {};

TEST_P(Damaged, IsRepairedFromACopyOrFromItself) {
  const TempDir root;
  save_all(root, {1}, 1);
  const TempDir elsewhere;
  fs::copy(directory(root, 1), elsewhere / "copy", fs::copy_options::recursive);
  const auto good = snapshot(elsewhere / "copy");
  GetParam().make(directory(root, 1));
  const auto before = snapshot(root.path());

  const Repair alone = repair(root.path(), {.dry_run = true});
  EXPECT_EQ(alone.faults.empty(), !GetParam().needs_copy);
  const Repair dry = repair(directory(root, 1), {.dry_run = true, .from = {elsewhere / "copy"}});
  EXPECT_THAT(dry.faults, IsEmpty());
  EXPECT_EQ(snapshot(root.path()), before);

  const Repair first = repair(root.path());
  EXPECT_EQ(first.faults.empty(), !GetParam().needs_copy);
  for (const RepairFault& fault : first.faults) {
    EXPECT_EQ(fault.step, 1u);
    expect_one_line(fault.message, {"checkpoint-1"});
  }
  if (GetParam().needs_copy) {
    const Repair second = repair(directory(root, 1), {.from = {elsewhere / "copy"}});
    EXPECT_THAT(second.faults, IsEmpty());
    EXPECT_EQ(second.actions.size(), dry.actions.size());
    for (const RepairAction& action : second.actions) expect_one_line(action.what, {"checkpoint-1", "written anew"});
  }
  EXPECT_EQ(snapshot(directory(root, 1)), good);
  EXPECT_EQ(snapshot(elsewhere / "copy"), good);
  expect_loads(directory(root, 1), 1, Cut::kRows, 1);
  const Repair last = repair(root.path());
  EXPECT_THAT(last.actions, IsEmpty());
  EXPECT_THAT(last.faults, IsEmpty());
  EXPECT_GT(last.blocks, 100u);
}

INSTANTIATE_TEST_SUITE_P(Repair, Damaged, testing::ValuesIn(kDamages),
                         [](const auto& damage) { return std::string(damage.param.name); });

TEST(Repair, TakesBlocksOfOtherStepsOfTheRoot) {
  const TempDir root;
  save_all(root, {1, 2}, 1);
  const auto good = snapshot(directory(root, 1));
  fs::remove(large_file(directory(root, 1)));
  flip(directory(root, 1) / "cairn.blocks", 60);
  const Repair done = repair(root.path());
  EXPECT_THAT(done.faults, IsEmpty());
  ASSERT_THAT(done.actions, SizeIs(2));
  EXPECT_THAT(done.actions[1].what, HasSubstr("'checkpoint-2'"));
  EXPECT_EQ(snapshot(directory(root, 1)), good);
  const format::RunLog log = root::read_run_log(root.path());
  ASSERT_FALSE(log.calls.empty());
  EXPECT_EQ(log.calls.back().what, format::kLogRepair);
  EXPECT_EQ(log.calls.back().step, 1u);
  EXPECT_EQ(log.calls.back().outcome, format::kLogGood);
  EXPECT_EQ(log.calls.back().files, 2u);
  EXPECT_TRUE(format::log_by_step(log).at(1).verified.has_value());
}

TEST(Repair, DoesNotTakeAHardLinkForAnotherCopy) {
  const TempDir root;
  save_all(root, {1, 2}, 1);
  const fs::path file = large_file(directory(root, 1));
  const fs::path linked = directory(root, 2) / file.filename();
  fs::remove(linked);
  fs::create_hard_link(file, linked);
  flip(file, 4096 * 3 + 5);
  const auto before = snapshot(root.path());
  const Repair done = repair(root.path());
  EXPECT_THAT(done.actions, IsEmpty());
  ASSERT_THAT(done.faults, SizeIs(2));
  EXPECT_EQ(done.faults[0].block, 3u);
  EXPECT_THAT(done.faults[0].tensors, testing::Not(IsEmpty()));
  EXPECT_THAT(done.faults[0].message, HasSubstr("found nowhere else"));
  EXPECT_EQ(snapshot(directory(root, 1)), snapshot(directory(root, 1)));
  const format::RunLog log = root::read_run_log(root.path());
  EXPECT_EQ(log.calls.back().outcome, format::kLogFailed);
  EXPECT_EQ(log.calls.back().faults, 1u);
  EXPECT_EQ(read_file(file), before.at(file.lexically_relative(root.path())));
}

TEST(Repair, DoesNotTakeBadBlocksOrOtherTensors) {
  for (const std::uint64_t offset : {4096 * 3 + 7, 20}) {  // the same block; the header: another tensor is there
    const TempDir root;
    save_all(root, {1, 2}, 1);
    const fs::path file = large_file(directory(root, 1));
    flip(file, 4096 * 3 + 5);
    flip(directory(root, 2) / file.filename(), offset);
    const std::string damaged = read_file(file);
    const Repair done = repair(directory(root, 1));
    EXPECT_THAT(done.actions, IsEmpty());
    ASSERT_THAT(done.faults, SizeIs(1)) << offset;
    EXPECT_EQ(read_file(file), damaged);
  }
}

TEST(Repair, AFileIsReplacedOnlyIfAllOfItIsFound) {
  const TempDir root;
  save_all(root, {1}, 1);
  const TempDir elsewhere;
  fs::copy(directory(root, 1), elsewhere / "copy", fs::copy_options::recursive);
  const fs::path file = large_file(directory(root, 1));
  flip(file, 4096 * 2);
  flip(file, 4096 * 3);
  flip(elsewhere / "copy" / file.filename(), 4096 * 2);
  const std::string damaged = read_file(file);
  const Repair done = repair(root.path(), {.from = {elsewhere / "copy"}});
  ASSERT_THAT(done.faults, SizeIs(2));
  EXPECT_THAT(done.faults[0].message, HasSubstr("block 2"));
  EXPECT_THAT(done.faults[1].message, HasSubstr("a good one is in"));
  EXPECT_EQ(read_file(file), damaged);
}

TEST(Repair, TakesTheSameStepOfAnotherRoot) {
  const TempDir root;
  save_all(root, {1, 2}, 1);
  const TempDir elsewhere;
  fs::copy(root.path(), elsewhere / "root", fs::copy_options::recursive);
  const auto good = snapshot(directory(root, 2));
  fs::remove(directory(root, 2) / "cairn.json");
  EXPECT_THAT(repair(root.path(), {.from = {elsewhere / "root"}}).faults, IsEmpty());
  EXPECT_EQ(snapshot(directory(root, 2)), good);
}

TEST(Repair, KeepsPermissionsAndLeavesLinks) {
  const TempDir root;
  save_all(root, {1}, 1);
  const TempDir elsewhere;
  fs::copy(directory(root, 1), elsewhere / "copy", fs::copy_options::recursive);
  const fs::path file = large_file(directory(root, 1));
  flip(file, 4096 * 3);
  fs::permissions(file, fs::perms::owner_read | fs::perms::group_read);
  EXPECT_THAT(repair(root.path(), {.from = {elsewhere / "copy"}}).faults, IsEmpty());
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::group_read);

  fs::rename(file, elsewhere / "outside");
  fs::permissions(elsewhere / "outside", fs::perms::owner_write, fs::perm_options::add);
  flip(elsewhere / "outside", 4096 * 3);
  fs::create_symlink(elsewhere / "outside", file);
  const std::string damaged = read_file(elsewhere / "outside");
  const Repair done = repair(root.path(), {.from = {elsewhere / "copy"}});
  ASSERT_THAT(done.faults, SizeIs(1));
  EXPECT_THAT(done.faults[0].message, HasSubstr("is a link"));
  EXPECT_TRUE(fs::is_symlink(file));
  EXPECT_EQ(read_file(elsewhere / "outside"), damaged);
}

TEST(Repair, ClearsWhatSaversLeft) {
  const TempDir root;
  save_all(root, {1, 2}, 1);
  const std::string nonce = "0123456789abcdef";
  fs::create_directory(root / ("checkpoint-3." + nonce + ".partial"));
  fs::create_directory(root / ("checkpoint-1." + nonce + ".replaced"));
  fs::rename(directory(root, 1), root / ("checkpoint-1." + nonce + ".replaced") / "checkpoint-1");
  write_file(root / (std::string(root::kLatestFile) + "." + nonce + ".tmp"), "3\n");
  fs::create_directory(root / ".cairn" / ("removed." + nonce));
  write_file(root / ".cairn" / "state.json.tmp-7-1", "{");
  write_file(root / ".cairn" / ("log." + nonce + ".tmp"), "");
  write_file(directory(root, 2) / ("model.safetensors." + nonce + ".repair"), "half");
  write_file(directory(root, 2) / "notes.repair", "of a user");
  write_file(root / "results.partial", "of a user");
  const auto before = snapshot(root.path());
  const Repair dry = repair(root.path(), {.dry_run = true});
  EXPECT_THAT(dry.actions, SizeIs(7));
  EXPECT_EQ(snapshot(root.path()), before);
  const Repair done = repair(root.path());
  EXPECT_THAT(done.actions, SizeIs(7));
  EXPECT_THAT(done.faults, IsEmpty());
  expect_loads(directory(root, 1), 1, Cut::kRows, 1);
  EXPECT_TRUE(fs::exists(directory(root, 2) / "notes.repair") && fs::exists(root / "results.partial"));
  for (const auto& [name, text] : snapshot(root.path())) EXPECT_THAT(name, testing::Not(HasSubstr(nonce)));
  EXPECT_THAT(repair(root.path()).actions, IsEmpty());
}

std::string latest(const TempDir& root) { return read_file(root / root::kLatestFile); }

TEST(Repair, NamesTheNewestAgain) {
  const TempDir root;
  save_all(root, {1, 2}, 1);
  const auto expect_put_right = [&](const char* why) {
    const Repair dry = repair(root.path(), {.dry_run = true});
    ASSERT_THAT(dry.actions, testing::Not(IsEmpty())) << why;
    EXPECT_THAT(dry.actions[0].what, HasSubstr(why));
    EXPECT_EQ(repair(root.path()).actions.size(), dry.actions.size());
    EXPECT_EQ(latest(root), "2\n");
    EXPECT_EQ(root::read_root_state(root.path()).latest_written, 2u);
    EXPECT_EQ(root::read_root_state(root.path()).run_id, "test");
    EXPECT_THAT(repair(root.path()).actions, IsEmpty());
  };
  fs::remove(root / root::kLatestFile);
  expect_put_right("is missing");
  write_file(root / root::kLatestFile, "two");
  expect_put_right("does not name a step");
  write_file(root / root::kLatestFile, "7\n");
  expect_put_right("names step 7, which is not there");
  write_file(root / root::kLatestFile, "1\n");  // as after an ending between two steps of a commit
  root::note_latest(root.path(), 1, "test");
  expect_put_right("names step 1, though a later one is whole");
  write_file(root / ".cairn/state.json", "[]");
  expect_put_right("is damaged");
  fs::remove_all(root / ".cairn");
  expect_put_right("is missing");
}

TEST(Repair, LeavesTheStepThatAPersonChose) {
  const TempDir root;
  save_all(root, {1, 2}, 1);
  write_file(root / root::kLatestFile, "1\n");
  EXPECT_THAT(repair(root.path()).actions, IsEmpty());
  EXPECT_EQ(latest(root), "1\n");
  fs::remove(root / ".cairn/state.json");  // it may still be a person's choice
  EXPECT_THAT(repair(root.path()).actions, ElementsAre(testing::Field(&RepairAction::what, HasSubstr("a person"))));
  EXPECT_EQ(latest(root), "1\n");
  EXPECT_EQ(root::newest_step(root.path()), 1u);
}

TEST(Repair, IsRefusedWhileAnotherSaverIsAlive) {
  const TempDir root;
  save_all(root, {1}, 1);
  flip(large_file(directory(root, 1)), 4096 * 3);
  const auto lease = lease_of(root.path(), small_options());
  lease->hold();
  const auto before = snapshot(directory(root, 1));
  expect_error(ErrorKind::kState, [&] { (void)repair(root.path()); }, {"has another saver"});
  expect_error(ErrorKind::kState, [&] { (void)repair(directory(root, 1)); }, {"has another saver"});
  EXPECT_EQ(snapshot(directory(root, 1)), before);
  EXPECT_THAT(repair(root.path(), {.dry_run = true}).faults, SizeIs(1));
  EXPECT_EQ(root::read_run_log(root.path()).calls.back().outcome, format::kLogRefused);
}

TEST(Repair, RefusesWhatIsNoCheckpoint) {
  const TempDir root;
  save_all(root, {1}, 1);
  fs::create_directory(root / "empty");
  expect_error(ErrorKind::kNotFound, [&] { (void)repair(root / "nowhere"); }, {"nowhere"});
  expect_error(ErrorKind::kNotFound, [&] { (void)repair(root / "empty"); }, {"neither a checkpoint"});
  expect_error(ErrorKind::kUsage, [&] { (void)repair(root.path(), {.from = {root.path()}}); }, {"to be repaired"});
  expect_error(ErrorKind::kUsage, [&] { (void)repair(root.path(), {.from = {root / "empty"}}); }, {"neither"});
  expect_error(ErrorKind::kUsage, [&] { (void)repair(""); }, {"empty"});
  expect_error(ErrorKind::kUsage, [&] { (void)repair(directory(root, 1) / "cairn.json"); }, {"not a directory"});
  const TempDir foreign;  // another program's root does not become Cairn's
  fs::create_directory(foreign / "checkpoint-7");
  write_file(foreign / "checkpoint-7/model.safetensors", "weights");
  expect_error(ErrorKind::kNotFound, [&] { (void)repair(foreign.path()); }, {"neither a checkpoint"});
  EXPECT_FALSE(fs::exists(foreign / ".cairn"));
}

TEST(Repair, WorksOutsideARoot) {
  const TempDir root;
  save_all(root, {1}, 1);
  const TempDir elsewhere;
  fs::copy(directory(root, 1), elsewhere / "copy", fs::copy_options::recursive);
  flip(large_file(elsewhere / "copy"), 4096 * 3);
  EXPECT_THAT(repair(elsewhere / "copy", {.from = {directory(root, 1)}}).faults, IsEmpty());
  EXPECT_EQ(snapshot(elsewhere / "copy"), snapshot(directory(root, 1)));
}

/// Failures of a repair. After each, no good data is lost, and the next repair completes the work.
const char* const kFailures[] = {"repair.write",
                                 "repair.check",
                                 "repair.rename",
                                 "repair.sync",
                                 "open:path=.repair",
                                 "write:path=.repair",
                                 "fsync:path=.repair",
                                 "close:path=.repair",
                                 "write:path=.repair:lie",
                                 "rename:path=.safetensors:times=1",
                                 "rename:path=.safetensors:after=1",
                                 "rename:path=cairn.blocks",
                                 "lease.look:after=1",
                                 "repair.latest",
                                 "repair.latest.rename",
                                 "repair.noted",
                                 "rename:path=latest_checkpointed",
                                 "unlink"};

class FailingRepair : public testing::TestWithParam<const char*> {};

TEST_P(FailingRepair, LosesNothing) {
  for (const bool is_cut_off : {false, true}) {
    SCOPED_TRACE(is_cut_off ? "cut off" : "fails");
    const TempDir root;
    save_all(root, {1, 2, 3}, 1);
    const auto good = snapshot(directory(root, 1));
    const fs::path file = large_file(directory(root, 1));
    flip(file, 4096 * 3);
    fs::remove(directory(root, 1) / "cairn.blocks");
    fs::remove(directory(root, 1) / "model.safetensors.index.json");
    fs::remove(large_file(directory(root, 2)));
    fs::remove(root / root::kLatestFile);
    write_file(root / ".cairn/state.json.tmp-7-1", "{");
    std::string rules = GetParam();
    if (is_cut_off) rules += ";unlink:times=999";  // a program that has ended removes nothing
    std::uint64_t hits = 0;
    {
      const Faults faults(rules);
      try {
        (void)repair(root.path());
      } catch (const Error& error) {
        EXPECT_NE(error.kind(), ErrorKind::kInternal) << error.what();
      }
      hits = os::fault_hits();
    }
    EXPECT_GT(hits, 0u);
    for (const auto& [name, bytes] : good) {  // good files are as they were, and damaged ones as before or good
      if (fs::exists(directory(root, 1) / name) && directory(root, 1) / name != file) {
        EXPECT_EQ(read_file(directory(root, 1) / name), bytes) << name;
      }
    }
    expect_loads(directory(root, 3), 1, Cut::kRows, 1);
    EXPECT_EQ(root::newest_step(root.path()), 3u);
    EXPECT_THAT(repair(root.path()).faults, IsEmpty());
    EXPECT_EQ(snapshot(directory(root, 1)), good);
    EXPECT_EQ(latest(root), "3\n");
    for (const std::uint64_t step : {1, 2, 3}) expect_loads(directory(root, step), 1, Cut::kRows, 1);
    EXPECT_THAT(repair(root.path()).actions, IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(Repair, FailingRepair, testing::ValuesIn(kFailures), [](const auto& failure) {
  std::string name = failure.param;
  for (char& letter : name) letter = std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
  return name;
});

}  // namespace
}  // namespace cairn::test
