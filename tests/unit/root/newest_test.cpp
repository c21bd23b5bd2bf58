// The newest checkpoint of a root, the void ones, and the steps that may be saved again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "cairn/error.hpp"
#include "cairn/log.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "format/blocks.hpp"
#include "format/limits.hpp"
#include "manual_clock.hpp"
#include "opening/carried.hpp"
#include "root/lease_folder.hpp"
#include "root/root.hpp"
#include "root/root_state.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using format::Life;
using root::Descent;
using root::why_void;
using testing::HasSubstr;

/// Saves `steps` in one life with this lineage, then ends the life.
void live(const fs::path& root, const std::vector<Life>& lineage, const std::vector<std::uint64_t>& steps,
          const std::string& run = "test", bool allow_other_run = false) {
  Options options = small_options();
  options.run_id = run;
  options.allow_other_run = allow_other_run;
  const auto lease = lease_of(root, options);
  std::uint64_t saves = 0;
  for (const std::uint64_t step : steps) {
    save_simulated_by(*lease, step, Cut::kRows, 2, options, static_cast<int>(step), lineage, saves++);
  }
}

/// Makes a checkpoint that no life saved, as a conversion does; its manifest has step 1.
void put(const fs::path& directory, int values = 1) {
  Options options = small_options();
  options.overwrite = true;
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    RankState state(small_state(), Cut::kRows, communicator.rank(), 2);
    state.fill(values);
    const auto sources = state.sources();
    io::WindowStore store;
    Extras extras;
    extras.carry_texts = {{"config.json", "{}"}};
    checkpoint::Saver(communicator, options, store).save(directory, 1, sources, extras);
  });
}

std::map<std::uint64_t, std::string> problems(const fs::path& root) {
  std::map<std::uint64_t, std::string> out;
  for (const auto& entry : root::list_root(root)) {
    EXPECT_EQ(entry.is_void, !entry.problem.empty());
    if (entry.is_void) out[entry.step] = entry.problem;
  }
  return out;
}

/// "600! 500 300": steps in resume order, incomplete ones with "!".
std::string order_of(const fs::path& root) {
  std::string text;
  for (const auto& entry : root::resume_order(root, root::list_root(root))) {
    EXPECT_EQ(entry.problem.empty(), entry.is_complete() && !entry.is_void);
    text += (text.empty() ? "" : " ") + std::to_string(entry.step) + (entry.is_complete() ? "" : "!");
  }
  return text;
}

void lose_a_file(const fs::path& root, std::uint64_t step) {
  const auto directory = root::checkpoint_directory(root, step);
  fs::remove(directory / opening::open_here(directory).stored.files.at(0).name);
}

void cut_manifest(const fs::path& root, std::uint64_t step) {
  fs::resize_file(root::checkpoint_directory(root, step) / format::kManifestFile, 10);
}

TEST(Newest, AStepBeyondWhereALifeWasLeftIsVoid) {
  const Descent descent{4, {{1, 500, 5}, {3, 900, 9}}};
  EXPECT_EQ(why_void(descent, 5000, {4, 50}), std::nullopt);
  EXPECT_EQ(why_void(descent, 500, {1, 5}), std::nullopt);
  EXPECT_THAT(why_void(descent, 600, {1, 6}).value(), HasSubstr("epoch 1 was left at step 500"));
  EXPECT_THAT(why_void(descent, 1, {2, 1}).value(), HasSubstr("saved in epoch 2"));
  EXPECT_EQ(why_void(descent, 900, {3, 9}), std::nullopt);
  EXPECT_TRUE(why_void(descent, 901, {3, 10}));
  EXPECT_EQ(why_void(descent, 7000, {0, 0}), std::nullopt);   // saved outside of a root, or without an epoch
  EXPECT_EQ(why_void({4, {}}, 7000, {3, 70}), std::nullopt);  // a life that resumed nothing abandons nothing
  // The ancestors of the oldest life in a lineage are unknown: that life may have resumed without a Checkpointer.
  EXPECT_EQ(why_void({4, {{3, 900, 9}}}, 7000, {2, 70}), std::nullopt);
  EXPECT_EQ(why_void({4, {{3, 900, 9}}}, 7000, {1, 70}), std::nullopt);
  EXPECT_TRUE(why_void({4, {{2, 900, 9}}}, 7, {3, 1}));
  // Without counters the step decides.
  EXPECT_TRUE(why_void({4, {{0, 500}}}, 501, {0, 0}));
  EXPECT_EQ(why_void({4, {{1, 500}}}, 500, {1, 9}), std::nullopt);
  EXPECT_TRUE(why_void({4, {{1, 500}}}, 501, {1, 9}));
}

/// A life that starts again at low steps in the same root does not abandon its earlier checkpoints.
TEST(Newest, ALifeThatCountsItsStepsAnewKeepsItsHigherOnes) {
  const TempDir root;
  live(root.path(), {}, {1000, 2000, 10, 20});
  EXPECT_EQ(root::newest_step(root.path()), 20U);
  const auto from_10 = checkpoint::lineage_after(*opening::open_here(root / "checkpoint-10").manifest, 10);
  EXPECT_EQ(from_10, (std::vector<Life>{{1, 10, 3}}));
  live(root.path(), from_10, {15});
  EXPECT_EQ(order_of(root.path()), "15 10 2000 1000 20");
  EXPECT_THAT(problems(root.path()).at(20), HasSubstr("epoch 1 was left at step 10 by what is now epoch 2"));
  EXPECT_THROW(live(root.path(), from_10, {2000}), Error);  // still valid, so not replaced
  expect_loads(root / "checkpoint-2000", 2000, Cut::kRows, 3);
  // A resume from step 1000, which was saved before the restart, makes all later saves void, even those of lower steps.
  const auto from_1000 = checkpoint::lineage_after(*opening::open_here(root / "checkpoint-1000").manifest, 1000);
  live(root.path(), from_1000, {1500});
  EXPECT_EQ(problems(root.path()).size(), 4U);
  EXPECT_EQ(order_of(root.path()), "1500 1000 15 20 10 2000");
}

TEST(Newest, AfterARollBackItIsWhatWasSavedLast) {
  const TempDir root;
  live(root.path(), {}, {300, 500, 700, 1000});
  EXPECT_EQ(root::newest_step(root.path()), 1000U);
  live(root.path(), {{1, 500}}, {600});
  EXPECT_EQ(root::newest_step(root.path()), 600U);
  const auto voids = problems(root.path());
  ASSERT_EQ(voids.size(), 2U);
  EXPECT_THAT(voids.at(700), HasSubstr("epoch 1 was left at step 500 by what is now epoch 2"));
  EXPECT_THAT(voids.at(1000), HasSubstr("void"));
  // Without the head and the void steps, the newest is the next step down the lineage.
  fs::remove(root / "checkpoint-600" / "cairn.blocks");
  fs::remove(root / "checkpoint-600" / "cairn.json");
  fs::remove_all(root / "checkpoint-1000");
  fs::remove_all(root / "checkpoint-700");
  EXPECT_EQ(root::newest_step(root.path()), 500U);
}

TEST(Newest, VoidAndIncompleteStepsAreSavedAgainWithoutOverwrite) {
  const TempDir root;
  live(root.path(), {}, {500, 700, 1000});
  fs::resize_file(root / "checkpoint-1000" / "cairn.blocks", 10);
  live(root.path(), {{1, 500}}, {700});
  expect_loads(root / "checkpoint-700", 700, Cut::kRows, 3);
  lose_a_file(root.path(), 700);
  live(root.path(), {{1, 500}}, {700});
  EXPECT_THROW(live(root.path(), {{1, 500}}, {500}), Error);  // an ancestor
  EXPECT_THROW(live(root.path(), {}, {700}), Error);          // this life resumed nothing: all others are valid
  expect_loads(root / "checkpoint-500", 500, Cut::kRows, 3);
  EXPECT_EQ(root::newest_step(root.path()), 700U);
}

/// A life that resumed without a Checkpointer, or with another Checkpointer object, has no lineage.
TEST(Newest, WhatCameBeforeALifeOfUnknownOriginIsNeverVoid) {
  const TempDir root;
  live(root.path(), {}, {100});
  live(root.path(), {}, {200});
  live(root.path(), {{2, 200}}, {300});
  EXPECT_EQ(problems(root.path()).size(), 0U);
  EXPECT_EQ(order_of(root.path()), "300 200 100");
  EXPECT_THROW(live(root.path(), {{2, 200}}, {100}), Error);
  expect_loads(root / "checkpoint-100", 100, Cut::kRows, 3);
}

/// A process that stopped for longer than its lease time, while no other saver took the lease.
TEST(Newest, ALifeWhoseLeaseRanOutLeavesNothingOfItsOwnVoid) {
  const TempDir root;
  live(root.path(), {}, {100});
  ManualClock clock;
  const auto lease = lease_of(root.path(), small_options(), clock);
  checkpoint::RootLife life{lease.get(), {{1, 100}}, 0};
  const auto save = [&](std::uint64_t step) {
    comm::run_simulated(1, [&](comm::Communicator& communicator) {
      RankState state(small_state(), Cut::kRows, 0, 1);
      io::WindowStore store;
      checkpoint::Saver saver(communicator, small_options(), store);
      saver.save(root::checkpoint_directory(root.path(), step), step, state.sources(), {}, &life);
    });
  };
  save(200);
  save(150);
  clock.jump(std::chrono::hours(1));
  save(300);
  const auto last = opening::open_here(root / "checkpoint-300");
  EXPECT_EQ(last.manifest->epoch, 3U);
  EXPECT_EQ(last.manifest->lineage, (std::vector<Life>{{1, 100}, {2, 150, 2}}));
  EXPECT_EQ(problems(root.path()).size(), 0U);
  EXPECT_EQ(order_of(root.path()), "300 150 200 100");
  EXPECT_THROW(save(200), Error);
}

/// A checkpoint that was converted into the root or copied under another step: its manifest has a different step, or
/// none.
TEST(Newest, WhatWasPutIntoTheRootIsGoneOnFromByItsName) {
  const TempDir root;
  live(root.path(), {}, {10});
  put(root / "checkpoint-500");
  const auto lineage = checkpoint::lineage_after(*opening::open_here(root / "checkpoint-500").manifest, 500);
  EXPECT_EQ(lineage, (std::vector<Life>{{0, 500}}));
  live(root.path(), lineage, {600});
  EXPECT_EQ(problems(root.path()).size(), 0U) << "nothing is known of what came before it";
  EXPECT_EQ(order_of(root.path()), "600 10 500");
  EXPECT_EQ(opening::open_here(root / "checkpoint-600").manifest->parent, "checkpoint-500");
  EXPECT_THROW(live(root.path(), {{0, 500}, {2, 600}}, {500}), Error);
}

TEST(Newest, WhatWasPutIntoTheRootStaysThoughItIsVoid) {
  const TempDir root;
  for (const char* name : {"checkpoint-100", "checkpoint-200"}) put(root / name);
  live(root.path(), {{0, 100}}, {150});
  EXPECT_EQ(order_of(root.path()), "150 100 200");
  EXPECT_THROW(live(root.path(), {{0, 100}, {1, 150}}, {200}), Error);
}

TEST(Newest, AConversionInThePlaceOfItsSourceIsTheNewestStill) {
  const TempDir root;
  live(root.path(), {}, {100, 200});
  put(root / "checkpoint-200");
  EXPECT_EQ(root::newest_step(root.path()), 200U);
  EXPECT_EQ(order_of(root.path()), "200 100");
}

TEST(Newest, ACheckpointOfAnotherRunTakesNoRootOver) {
  const TempDir root;
  live(root.path(), {}, {100, 200});
  const TempDir other;
  for (const std::uint64_t step : {1, 2, 300}) live(other.path(), {}, {step}, "other");
  fs::copy(other / "checkpoint-300", root / "checkpoint-300", fs::copy_options::recursive);
  EXPECT_EQ(root::newest_step(root.path()), 200U);
  EXPECT_THAT(problems(root.path()).at(300), HasSubstr("saved by run 'other', and this is the root of run 'test'"));
  EXPECT_EQ(order_of(root.path()), "200 100 300");
  EXPECT_THROW(live(root.path(), {{1, 200}}, {250}), Error) << "it is noticed";
  live(root.path(), {{1, 200}}, {250}, "test", true);  // epoch 4, above the epochs of both roots
  EXPECT_EQ(order_of(root.path()), "250 200 100 300");
  EXPECT_THROW(live(root.path(), {{1, 200}, {4, 250}}, {300}, "test", true), Error) << "somebody wants it";
}

TEST(Newest, ALatestFileThatCannotBeReadNowIsNotAbsent) {
  const TempDir root;
  live(root.path(), {}, {100, 300});
  write_file(root / root::kLatestFile, "100");
  for (const char* file : {"latest_checkpointed", "state.json"}) {
    const Faults faults(std::string("open:times=9:errno=EACCES:path=") + file);
    expect_error(ErrorKind::kIo, [&] { (void)root::newest_step(root.path()); }, {file, "Permission denied"});
    EXPECT_EQ(problems(root.path()).size(), 0U) << "a listing goes on";
  }
  EXPECT_EQ(root::newest_step(root.path()), 100U);
  write_file(root / root::kLatestFile, "iter_0000100");
  std::string said;
  set_log_sink([&](LogLevel, std::string_view line) { said += line; });
  EXPECT_EQ(root::newest_step(root.path()), 300U);
  set_log_sink({});
  EXPECT_THAT(said, HasSubstr("latest_checkpointed_iteration.txt' is not followed: it holds no number of a step"));
}

TEST(Newest, AStepOnAFileSystemThatIsNotMountedIsNotAbsent) {
  const TempDir root;
  live(root.path(), {}, {100, 300});
  fs::rename(root / "checkpoint-300", root / "elsewhere");
  fs::create_directory_symlink("elsewhere", root / "checkpoint-300");
  EXPECT_EQ(root::newest_step(root.path()), 300U);
  fs::rename(root / "elsewhere", root / "not-mounted");
  expect_error(ErrorKind::kIo, [&] { (void)root::newest_step(root.path()); },
               {"checkpoint-300", "is a link to something that is not there now"});
  EXPECT_EQ(order_of(root.path()), "300! 100");
  fs::remove(root / "checkpoint-300");
  EXPECT_EQ(root::newest_step(root.path()), 100U);
}

TEST(Newest, WhatWaitsBesideAStepIsNotTakenForOneThatCannotBeReadNow) {
  const TempDir root;
  live(root.path(), {}, {100});
  const fs::path at = root / "checkpoint-100";
  const fs::path old = root / "checkpoint-100.0123456789abcdef.replaced";
  fs::create_directory(old);
  fs::copy(at, old / "checkpoint-100");
  {
    const Faults faults("open:times=99:errno=EACCES:path=" + (at / format::kManifestFile).string());
    expect_error(ErrorKind::kIo, [&] { (void)root::newest_step(root.path()); }, {"Permission denied"});
    expect_error(ErrorKind::kIo, [&] { (void)opening::open_here(at); }, {"Permission denied"});
  }
  lose_a_file(root.path(), 100);
  EXPECT_EQ(root::newest_step(root.path()), 100U) << "the old one";
}

TEST(Newest, PeopleGoBackByEditingTheLatestFile) {
  const TempDir root;
  live(root.path(), {}, {100, 200, 300});
  EXPECT_EQ(root::read_root_state(root.path()).latest_written, 300U);
  EXPECT_EQ(read_file(root / root::kLatestFile), "300\n");
  write_file(root / root::kLatestFile, "200");
  EXPECT_EQ(root::newest_step(root.path()), 200U);
  for (const char* useless : {"150", "release", "", "-1", "200x", "99999999999999999999"}) {
    write_file(root / root::kLatestFile, useless);
    EXPECT_EQ(root::newest_step(root.path()), 300U) << useless;
  }
  live(root.path(), {{1, 200}}, {250});
  EXPECT_EQ(root::newest_step(root.path()), 250U);
  write_file(root / root::kLatestFile, "300");  // void
  EXPECT_EQ(root::newest_step(root.path()), 250U);
  // If a save is interrupted before it writes the latest file, that file names Cairn's previous step: the head counts.
  write_file(root / root::kLatestFile, "100");
  write_file(root / root::kLeaseDirectory / root::kRootStateFile, R"({"latest_written": 100, "later": [1]})");
  EXPECT_EQ(root::newest_step(root.path()), 250U);
  live(root.path(), {{1, 200}, {2, 250}}, {260});
  EXPECT_THAT(read_file(root / root::kLeaseDirectory / root::kRootStateFile), HasSubstr("\"later\": ["));
}

TEST(ResumeOrder, GoesBackInTheOrderOfSaving) {
  const TempDir root;
  EXPECT_EQ(order_of(root.path()), "");
  live(root.path(), {}, {300, 500, 400});
  EXPECT_EQ(order_of(root.path()), "400 500 300");
  lose_a_file(root.path(), 500);
  cut_manifest(root.path(), 300);
  EXPECT_EQ(order_of(root.path()), "400 500! 300!");
  fs::create_directory(root / "checkpoint-900");  // foreign or damaged, and never the last saved step
  fs::create_directory(root / "checkpoint-901.0123456789abcdef.partial");
  EXPECT_EQ(order_of(root.path()), "400 500! 300! 900!");
  cut_manifest(root.path(), 400);
  EXPECT_EQ(order_of(root.path()), "400! 300! 900! 500!");
  fs::remove_all(root / root::kLeaseDirectory);
  fs::remove(root / root::kLatestFile);  // no record says that 900 is older
  EXPECT_EQ(order_of(root.path()), "900! 500! 400! 300!");
}

/// Abandoned steps are tried last.
TEST(ResumeOrder, TriesWhatIsVoidToADamagedOneLast) {
  const TempDir root;
  live(root.path(), {}, {300, 500, 700, 1000});
  live(root.path(), {{1, 500}}, {600});
  EXPECT_EQ(order_of(root.path()), "600 500 300 1000 700");
  lose_a_file(root.path(), 600);
  EXPECT_EQ(root::newest_step(root.path()), 500U);
  EXPECT_EQ(root::highest_saved_epoch(root.path()), 2U);
  EXPECT_EQ(order_of(root.path()), "600! 500 300 1000 700");
  for (const std::uint64_t step : {500, 300}) lose_a_file(root.path(), step);
  EXPECT_EQ(root::newest_step(root.path()), 1000U);  // void, and the only one left
  cut_manifest(root.path(), 600);                    // its lineage is lost, but it is known to be the last one saved
  EXPECT_EQ(order_of(root.path()), "600! 500! 300! 1000 700");
}

TEST(ResumeOrder, ForgetsADamagedStepThatARunWentBackFrom) {
  for (const bool has_manifest : {true, false}) {
    const TempDir root;
    live(root.path(), {}, {10, 20, 30});
    has_manifest ? lose_a_file(root.path(), 30) : cut_manifest(root.path(), 30);
    EXPECT_EQ(order_of(root.path()), "30! 20 10");
    live(root.path(), {{1, 20}}, {25});
    EXPECT_EQ(order_of(root.path()), has_manifest ? "25 20 10" : "25 20 10 30!");
    if (!has_manifest) {  // kept, as nothing proves that it is void
      EXPECT_THROW(live(root.path(), {{1, 20}, {2, 25}}, {30}), Error);
      continue;
    }
    live(root.path(), {{1, 20}, {2, 25}}, {30});
    EXPECT_EQ(order_of(root.path()), "30 25 20 10");
  }
}

TEST(ResumeOrder, BeginsWherePeopleWentBackTo) {
  const TempDir root;
  live(root.path(), {}, {10, 20, 30, 40});
  const auto order_from = [&](const char* latest) {
    write_file(root / root::kLatestFile, latest);
    return order_of(root.path());
  };
  EXPECT_EQ(order_from("30"), "30 20 10");
  EXPECT_EQ(order_from("35"), "40 30 20 10");
  lose_a_file(root.path(), 30);
  EXPECT_EQ(order_from("30"), "30! 20 10");
  cut_manifest(root.path(), 30);
  EXPECT_EQ(order_from("30"), "30! 20 10");
  EXPECT_EQ(order_from("40"), "40 30! 20 10");
  lose_a_file(root.path(), 10);
  write_file(root / root::kLatestFile, "10");
  try {
    (void)root::newest_step(root.path());
    ADD_FAILURE() << "a run that has whole checkpoints was told that there are none";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kState);
    EXPECT_THAT(error.what(), HasSubstr("was edited to name step 10"));
  }
  live(root.path(), {{1, 20}}, {25});
  EXPECT_EQ(order_from("40"), "25 20 10! 30! 40");  // void
}

TEST(Newest, ThrowsWhereTheNewestCannotBeRead) {
  const TempDir root;
  live(root.path(), {}, {10, 20});
  const std::string whole = read_file(root / "checkpoint-20" / format::kManifestFile);
  const auto expect_thrown = [&](ErrorKind kind, const char* part) {
    try {
      (void)root::newest_step(root.path());
      ADD_FAILURE() << "nothing was thrown; expected: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("checkpoint-20'"), HasSubstr(part)));
    }
  };
  const std::pair<const char*, const char*> rules[] = {
      {"open:path=checkpoint-20/cairn.json", "Input/output error"},
      {"read:path=checkpoint-20/cairn.json", "Input/output error"},
      {"stat:path=checkpoint-20/cairn.json:errno=ESTALE", "Stale file handle"},
      {"stat:path=checkpoint-20/optimizer", "Input/output error"}};
  for (const auto& [rule, part] : rules) {
    const Faults faults(std::string(rule) + ":times=9");
    expect_thrown(ErrorKind::kIo, part);
  }
  for (const char* text : {"{}", "", "{\"format\": \"cairn-checkpoint\", \"format_version\": 99}"}) {
    write_file(root / "checkpoint-20" / format::kManifestFile, text);
    expect_thrown(ErrorKind::kFormat, *text == '\0' || text[1] == '}' ? "cairn.json" : "format version 99");
  }
  write_file(root / "checkpoint-20" / format::kManifestFile, whole);
  cut_manifest(root.path(), 10);  // an older step, so not the newest
  EXPECT_EQ(root::newest_step(root.path()), 20U);
  fs::create_directory(root / "checkpoint-30");  // foreign
  EXPECT_EQ(root::newest_step(root.path()), 20U);
}

TEST(Newest, ManifestsNameEpochCounterAndLineage) {
  const TempDir root;
  live(root.path(), {}, {1, 2});
  live(root.path(), {{1, 2, 2}}, {3});
  const auto second = opening::open_here(root / "checkpoint-2");
  EXPECT_EQ(second.manifest->epoch, 1U);
  EXPECT_EQ(second.manifest->counter, 2U);
  EXPECT_TRUE(second.manifest->lineage.empty());
  const auto third = opening::open_here(root / "checkpoint-3");
  EXPECT_EQ(third.manifest->epoch, 2U);
  EXPECT_EQ(third.manifest->counter, 1U);
  EXPECT_EQ(third.manifest->lineage, (std::vector<Life>{{1, 2, 2}}));
  EXPECT_EQ(third.manifest->parent, "checkpoint-2");
}

// Damage is an error in every file; only a directory without cairn.json and cairn.blocks counts as foreign.
class Damage : public testing::Test {
 protected:
  Damage() { put(directory()); }
  [[nodiscard]] fs::path directory() const { return root_ / "checkpoint-1"; }
  void expect_refused(ErrorKind kind, std::string_view part) const {
    try {
      (void)opening::open_here(directory());
      ADD_FAILURE() << "opened; expected: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(std::string(part)));
    }
  }
  void flip(const char* file, std::uint64_t at) const {
    std::string text = read_file(directory() / file);
    text.at(at) = static_cast<char>(text.at(at) ^ 1);
    write_file(directory() / file, text);
  }

 private:
  TempDir root_;
};

TEST_F(Damage, AnEmptyManifestIsNotAForeignCheckpoint) {
  write_file(directory() / "cairn.json", "");
  expect_refused(ErrorKind::kFormat, "not valid JSON");
}

TEST_F(Damage, OfAHeaderIsFoundBeforeItIsParsed) {
  flip(opening::open_here(directory()).stored.files.at(0).name.c_str(), 12);
  expect_refused(ErrorKind::kIntegrity, "block 0, which holds its header");
}

TEST_F(Damage, OfACarriedFileIsFoundWhereItIsRead) {
  flip("config.json", 0);
  const auto opened = opening::open_here(directory());
  EXPECT_THROW((void)opening::read_carried(opened, "config.json", 100), Error);
  fs::remove(directory() / "config.json");
  expect_refused(ErrorKind::kIntegrity, "config.json' is missing");
}

TEST_F(Damage, AFifoIsRefusedAtOnce) {
  fs::remove(directory() / "cairn.json");
  ASSERT_EQ(mkfifo((directory() / "cairn.json").c_str(), 0600), 0);
  expect_refused(ErrorKind::kFormat, "is neither a file nor a directory");
  EXPECT_FALSE(root::list_root(directory().parent_path()).at(0).is_complete());
}

TEST_F(Damage, ChecksumsOfAnotherCheckpointAreFoundAtOnce) {
  const TempDir other;
  put(other / "checkpoint-1", 2);
  write_file(directory() / format::kBlocksFile, read_file(other / "checkpoint-1" / format::kBlocksFile));
  expect_refused(ErrorKind::kIntegrity, "but cairn.json names");
}

TEST_F(Damage, AFileBeyondAllReasonIsNotReadIntoMemory) {
  constexpr std::uintmax_t kSparse = std::uintmax_t{1} << 40;
  for (const char* name : {format::kBlocksFile, format::kManifestFile}) {
    const std::string whole = read_file(directory() / name);
    fs::resize_file(directory() / name, kSparse);
    expect_refused(ErrorKind::kFormat, "has 1099511627776 bytes");
    write_file(directory() / name, whole);
  }
  EXPECT_NO_THROW((void)opening::open_here(directory()));
}

TEST_F(Damage, ABlockSizeThatNoMemoryHoldsIsRefused) {
  base::Bytes blocks = format::encode_blocks({format::limits::kBlockBytes * 2, {}});
  EXPECT_THROW((void)format::decode_blocks(blocks, "cairn.blocks"), Error);
  blocks = format::encode_blocks({format::limits::kBlockBytes, {}});
  EXPECT_EQ(format::decode_blocks(blocks, "cairn.blocks").block_bytes, format::limits::kBlockBytes);
}

TEST(Sections, OfOnesOwnComeBack) {
  const TempDir root;
  const std::vector<float> value(100, 1.5F);
  comm::run_simulated(1, [&](comm::Communicator& communicator) {
    Source source;
    source.section = "ema";
    source.name = "w";
    source.shape = {100};
    source.boxes = {{{0}, {100}}};
    source.data = value.data();
    io::WindowStore store;
    checkpoint::Saver(communicator, small_options(), store).save(root / "one", 1, {&source, 1}, {});
  });
  const auto opened = opening::open_here(root / "one");
  EXPECT_EQ(opened.stored.tensors.at(0).section, "ema");
}

TEST(Carried, AnIndexOfTensorsIsRefused) {
  const TempDir root;
  Extras extras;
  extras.carry_texts = {{"model.safetensors.index.json", "{}"}};
  EXPECT_THROW(
      comm::run_simulated(1,
                          [&](comm::Communicator& communicator) {
                            RankState state(small_state(), Cut::kRows, 0, 1);
                            const auto sources = state.sources();
                            Options options = small_options();
                            options.files.max_bytes = 1ULL << 30;
                            io::WindowStore store;
                            checkpoint::Saver(communicator, options, store).save(root / "x", 1, sources, extras);
                          }),
      Error);
  EXPECT_TRUE(fs::is_empty(root.path()));
}

}  // namespace
}  // namespace cairn::test
