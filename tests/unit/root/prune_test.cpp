// Pruning of a root: the steps that go and those that stay; failures and endings at each step; pins, loads and other
// savers that come in between.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <set>
#include <thread>

#include "cairn/error.hpp"
#include "cairn/retention.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "manual_clock.hpp"
#include "root/commit.hpp"
#include "root/lease_folder.hpp"
#include "root/load_mark.hpp"
#include "root/pins.hpp"
#include "root/prune.hpp"
#include "root/root_state.hpp"
#include "root/run_log.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::int64_t kNowS = 1'800'000'000;

fs::path directory(const TempDir& root, std::uint64_t step) { return root::checkpoint_directory(root.path(), step); }

/// Saves the steps in this order as one life.
void save_all(const TempDir& root, const std::vector<std::uint64_t>& steps) {
  const auto lease = lease_of(root.path(), small_options());
  std::uint64_t saves = 0;
  for (const std::uint64_t step : steps) {
    save_simulated_by(*lease, step, Cut::kRows, 1, small_options(), static_cast<int>(step), {}, saves++);
  }
}

std::vector<std::uint64_t> steps_in(const TempDir& root) {
  std::vector<std::uint64_t> steps;
  for (const auto& entry : root::list_root(root.path())) {
    if (!entry.partial && entry.condition != root::Condition::kForeign) steps.push_back(entry.step);
  }
  return steps;
}

/// Names in the root and in .cairn that a saver did not mean to leave.
std::vector<std::string> remains_in(const TempDir& root) {
  std::vector<std::string> names;
  for (const char* folder : {"", ".cairn"}) {
    for (const auto& entry : fs::directory_iterator(root / folder)) {
      const std::string name = entry.path().filename();
      const bool is_named = name.find(".replaced") != std::string::npos || name.find(".partial") != std::string::npos;
      if (is_named || name.starts_with("removed.") || name.starts_with("loading-")) names.push_back(name);
    }
  }
  return names;
}

Pruning prune_by(root::Lease& lease, const Retention& retention, root::LoadWatch& loads) {
  root::take_root(lease);
  return root::prune(lease, root::plan_prune(lease.root(), retention, loads, kNowS), loads);
}
Pruning prune_by(root::Lease& lease, const Retention& retention) {
  root::LoadWatch loads;
  return prune_by(lease, retention, loads);
}

const StepFate& fate_of(const Pruning& pruning, std::uint64_t step) {
  const auto found = std::ranges::find(pruning.steps, step, &StepFate::step);
  if (found == pruning.steps.end()) throw std::logic_error("no such step");
  return *found;
}

TEST(Prune, RemovesWhatNoRuleKeeps) {
  const TempDir root;
  save_all(root, {100, 150, 200, 250, 300});
  const Pruning dry = prune(root.path(), {.keep_last = 1, .keep_every = 100}, {.dry_run = true});
  EXPECT_THAT(steps_in(root), ElementsAre(100, 150, 200, 250, 300));
  EXPECT_TRUE(fate_of(dry, 150).goes);
  EXPECT_EQ(fate_of(dry, 300).why, "newest, last 1, every 100");
  const std::uint64_t bytes = root::look_at(directory(root, 150)).bytes;
  const Pruning pruning = prune(root.path(), {.keep_last = 1, .keep_every = 100});
  EXPECT_THAT(steps_in(root), ElementsAre(100, 200, 300));
  EXPECT_THAT(remains_in(root), IsEmpty());
  EXPECT_THAT(pruning.warnings, IsEmpty());
  EXPECT_GT(pruning.freed_bytes, 2 * bytes);  // with the small files
  EXPECT_LT(pruning.freed_bytes, 3 * bytes);
  EXPECT_EQ(fate_of(pruning, 150).why, "no rule keeps it");
  const format::LogCall logged = root::read_run_log(root.path()).calls.back();
  EXPECT_EQ(logged.what, format::kLogPrune);
  EXPECT_THAT(logged.pruned, ElementsAre(150, 250));
  EXPECT_EQ(logged.bytes, pruning.freed_bytes);
  EXPECT_EQ(root::newest_step(root.path()), 300u);
  for (const std::uint64_t step : {100, 200, 300})
    expect_loads(directory(root, step), static_cast<int>(step), Cut::kRows, 1);
}

TEST(Prune, WithoutARuleDoesNothing) {
  const TempDir root;
  save_all(root, {1, 2});
  const auto epochs = std::distance(fs::directory_iterator(root / ".cairn"), {});
  EXPECT_EQ(fate_of(prune(root.path(), {}), 1).why, "no rule is given");
  EXPECT_EQ(std::distance(fs::directory_iterator(root / ".cairn"), {}), epochs);
  expect_error(ErrorKind::kUsage, [&] { (void)prune(root.path(), {.keep_last = 0}); }, {"keep_last"});
  expect_error(ErrorKind::kNotFound, [&] { (void)prune(root / "nowhere", {.keep_last = 1}); }, {"nowhere"});
}

TEST(Prune, LeavesWhatIsNotTheRuns) {
  const TempDir root;
  save_all(root, {1, 2, 3, 4, 5, 6, 9});
  fs::create_directory(directory(root, 7));  // of another program
  write_file(directory(root, 7) / "model.safetensors", "weights");
  fs::create_directory(root / "notes");
  fs::remove(directory(root, 1) / "cairn.json");
  fs::remove(directory(root, 1) / "cairn.blocks");  // as if another program had made it
  const TempDir elsewhere;
  fs::rename(directory(root, 2), elsewhere / "checkpoint-2");
  fs::create_symlink(elsewhere / "checkpoint-2", directory(root, 2));
  write_file(directory(root, 3) / "cairn.json", R"({"format": "cairn-checkpoint", "format_version": 3})");
  fs::create_hard_link(directory(root, 4) / "cairn.blocks", root / "a second name");
  const std::string blocks = read_file(root / "a second name");
  fs::remove(directory(root, 5) / "cairn.blocks");  // incomplete
  fs::create_directory(root / "checkpoint-8.0123456789abcdef.partial");
  const Pruning pruning = prune(root.path(), {.keep_last = 1});
  EXPECT_TRUE(fate_of(pruning, 5).goes);
  EXPECT_THAT(fate_of(pruning, 5).why, HasSubstr("cairn.blocks is missing"));
  for (const int step : {1, 2, 3, 7, 9}) EXPECT_FALSE(fate_of(pruning, static_cast<std::uint64_t>(step)).goes) << step;
  EXPECT_FALSE(fs::exists(directory(root, 4)) || fs::exists(directory(root, 5)) || fs::exists(directory(root, 6)));
  EXPECT_TRUE(fs::exists(elsewhere / "checkpoint-2/cairn.json") && fs::is_symlink(directory(root, 2)));
  EXPECT_TRUE(fs::exists(root / "notes"));
  EXPECT_EQ(read_file(root / "a second name"), blocks);
  EXPECT_EQ(read_file(directory(root, 7) / "model.safetensors"), "weights");
}

TEST(Prune, RemovesVoidStepsAndKeepsTheBest) {
  const TempDir root;
  save_all(root, {1, 2, 3});
  const auto manifest = format::parse_manifest(read_file(directory(root, 1) / "cairn.json"), "cairn.json");
  {
    const auto lease = lease_of(root.path(), small_options());
    save_simulated_by(*lease, 4, Cut::kRows, 1, small_options(), 4, checkpoint::lineage_after(manifest, 1));
  }
  const Pruning pruning = prune(root.path(), {.keep_last = 5});
  EXPECT_THAT(steps_in(root), ElementsAre(1, 4));
  EXPECT_THAT(fate_of(pruning, 3).why, HasSubstr("void"));
}

TEST(Prune, KeepsTheStepThatAPersonNamed) {
  const TempDir root;
  save_all(root, {1, 2, 3, 4});
  write_file(root / root::kLatestFile, "2\n");
  const Pruning pruning = prune(root.path(), {.keep_last = 1});
  EXPECT_THAT(steps_in(root), ElementsAre(2, 3, 4));
  EXPECT_THAT(fate_of(pruning, 3).why, HasSubstr("edited"));
}

TEST(Prune, IsRefusedWhileAnotherSaverIsAlive) {
  const TempDir root;
  save_all(root, {1, 2});
  const auto lease = lease_of(root.path(), small_options());
  lease->hold();
  expect_error(ErrorKind::kState, [&] { (void)prune(root.path(), {.keep_last = 1}); }, {"has another saver"});
  EXPECT_THAT(steps_in(root), ElementsAre(1, 2));
}

TEST(Pins, KeepACheckpoint) {
  const TempDir root;
  save_all(root, {1, 2, 3});
  pin(root.path(), 1);
  pin(root.path(), 1);
  EXPECT_THAT(root::read_pins(root.path()), ElementsAre(1));
  EXPECT_EQ(fate_of(prune(root.path(), {.keep_last = 1}), 1).why, "pinned");
  EXPECT_THAT(steps_in(root), ElementsAre(1, 3));
  unpin(root.path(), 1);
  expect_error(ErrorKind::kNotFound, [&] { unpin(root.path(), 1); }, {"not pinned"});
  EXPECT_TRUE(fate_of(prune(root.path(), {.keep_last = 1}), 1).goes);
  EXPECT_THAT(steps_in(root), ElementsAre(3));
  try {
    pin(root.path(), 1);
    ADD_FAILURE() << "a step that is gone was pinned";
  } catch (const Error& error) {
    EXPECT_EQ(error.missing(), Missing::kStep) << error.what();
  }
  EXPECT_THAT(root::read_pins(root.path()), IsEmpty());
}

/// Failures of a pruning. After each, the checkpoint is whole or gone, nothing else is touched, and the next saver
/// completes the work.
const char* const kFailures[] = {"prune.begin",
                                 "mkdir:path=checkpoint-",
                                 "lease.look",
                                 "lease.look:after=1",
                                 "prune.looked",
                                 "rename:path=.replaced/checkpoint-",
                                 "prune.aside",
                                 "prune.remove",
                                 "rename:path=removed.",
                                 "rename:path=removed.:after=1",
                                 "prune.delete",
                                 "fsync:path=.cairn",
                                 "unlink",
                                 "unlink:after=3",
                                 "unlink:path=removed.:after=1:times=1"};

class Failing : public testing::TestWithParam<const char*> {};

TEST_P(Failing, LosesNothing) {
  for (const bool is_cut_off : {false, true}) {
    SCOPED_TRACE(is_cut_off ? "cut off" : "fails");
    const TempDir root;
    save_all(root, {1, 2, 3, 4});
    std::string rules = GetParam();
    // A program that has ended undoes nothing either: no renames back, no removals.
    if (is_cut_off) rules += ";unlink:times=999;rename:after=1:times=999";
    std::uint64_t hits = 0;
    {
      const auto lease = lease_of(root.path(), small_options());
      root::take_root(*lease);
      const Faults faults(rules);
      try {
        (void)prune_by(*lease, {.keep_last = 2});
      } catch (const Error& error) {
        EXPECT_NE(error.kind(), ErrorKind::kInternal) << error.what();
      }
      hits = os::fault_hits();
    }
    EXPECT_GT(hits, 0u);
    for (const std::uint64_t step : {3, 4}) expect_loads(directory(root, step), static_cast<int>(step), Cut::kRows, 1);
    for (const std::uint64_t step : steps_in(root)) {
      expect_loads(directory(root, step), static_cast<int>(step), Cut::kRows, 1);  // readers find those moved aside
    }
    EXPECT_EQ(root::newest_step(root.path()), 4u);
    const Pruning pruning = prune(root.path(), {.keep_last = 2});
    EXPECT_THAT(pruning.warnings, IsEmpty());
    EXPECT_THAT(steps_in(root), ElementsAre(3, 4));
    EXPECT_THAT(remains_in(root), IsEmpty());
  }
}

std::string name_of_failure(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  for (char& letter : name) letter = std::isalnum(static_cast<unsigned char>(letter)) != 0 ? letter : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Prune, Failing, testing::ValuesIn(kFailures), name_of_failure);

/// A pruning of the first of two checkpoints is paused at `point` while `meanwhile` happens.
Pruning interleave(const TempDir& root, const char* point, const std::function<void()>& meanwhile) {
  save_all(root, {1, 2});
  const TempDir signals;
  const fs::path go = signals / "go";
  const Faults faults(std::string(point) + ":times=1:pause=" + go.string());
  Pruning pruning;
  std::thread pruner([&] {
    const auto lease = lease_of(root.path(), small_options());
    try {
      pruning = prune_by(*lease, {.keep_last = 1});
    } catch (const Error& error) {
      pruning.warnings.push_back(error.what());
    }
  });
  wait_until_paused(go);
  meanwhile();
  write_file(go, "");
  pruner.join();
  return pruning;
}

TEST(Prune, SeesAPinThatIsMadeMeanwhile) {
  for (const char* point : {"prune.begin", "prune.looked"}) {
    const TempDir root;
    const Pruning pruning = interleave(root, point, [&] { pin(root.path(), 1); });
    EXPECT_THAT(pruning.warnings, ElementsAre(HasSubstr("pinned just now"))) << point;
    expect_loads(directory(root, 1), 1, Cut::kRows, 1);
    EXPECT_THAT(remains_in(root), IsEmpty());
  }
  for (const char* point : {"prune.aside", "prune.remove"}) {
    const TempDir root;
    bool is_refused = false;
    (void)interleave(root, point, [&] {
      expect_loads(directory(root, 1), 1, Cut::kRows, 1);
      try {
        pin(root.path(), 1);
      } catch (const Error& error) {
        is_refused = error.missing() == Missing::kStep;
      }
    });
    EXPECT_TRUE(is_refused) << point;
    EXPECT_FALSE(fs::exists(directory(root, 1)) || root::is_pinned(root.path(), 1)) << point;
  }
}

TEST(Prune, SeesThatAPersonNamesTheStepMeanwhile) {
  const TempDir root;
  const Pruning pruning = interleave(root, "prune.looked", [&] { write_file(root / root::kLatestFile, "1\n"); });
  EXPECT_THAT(pruning.warnings, ElementsAre(HasSubstr("named by latest_checkpointed_iteration.txt just now")));
  EXPECT_EQ(root::newest_step(root.path()), 1u);
}

TEST(Prune, LeavesWhatALoadOpensMeanwhile) {
  for (const char* point : {"prune.begin", "prune.looked"}) {
    const TempDir root;
    std::unique_ptr<root::LoadMark> mark;
    const Pruning pruning =
        interleave(root, point, [&] { mark = std::make_unique<root::LoadMark>(directory(root, 1)); });
    EXPECT_TRUE(mark->is_made());
    EXPECT_THAT(pruning.warnings, ElementsAre(HasSubstr("being loaded by process"))) << point;
    expect_loads(directory(root, 1), 1, Cut::kRows, 1);
  }
}

/// As if the first saver had been presumed dead.
void pretend_released(const TempDir& root) {
  for (int epoch = 9; epoch > 0; --epoch) {
    const fs::path path = root / ".cairn" / ("epoch-" + std::to_string(epoch));
    if (!fs::exists(path)) continue;
    auto record = root::decode_lease(read_file(path)).value_or(root::LeaseRecord{});
    record.is_released = true;
    return write_file(path, root::encode_lease(record));
  }
}

TEST(Prune, EndsWhenAnotherSaverTakesTheRoot) {
  for (const char* point : {"prune.begin", "prune.looked", "prune.aside", "prune.remove"}) {
    SCOPED_TRACE(point);
    const TempDir root;
    std::unique_ptr<root::Lease> other;
    const Pruning pruning = interleave(root, point, [&] {
      pretend_released(root);
      other = lease_of(root.path(), small_options());
      save_simulated_by(*other, 3, Cut::kRows, 1, small_options(), 3);
    });
    ASSERT_EQ(pruning.warnings.size(), 1u);
    EXPECT_THAT(pruning.warnings.front(),
                testing::AnyOf(HasSubstr("another saver"), HasSubstr("it could not be moved")));
    for (const std::uint64_t step : {1, 2, 3})
      expect_loads(directory(root, step), static_cast<int>(step), Cut::kRows, 1);
  }
}

TEST(Loads, AreSeenUntilTheyEnd) {
  const TempDir root;
  save_all(root, {1, 2});
  const auto lease = lease_of(root.path(), small_options());
  root::LoadWatch loads;
  {
    const root::LoadMark mark(directory(root, 1));
    ASSERT_TRUE(mark.is_made());
    EXPECT_THAT(fate_of(prune_by(*lease, {.keep_last = 1}, loads), 1).why, HasSubstr("being loaded by process"));
    EXPECT_TRUE(fs::exists(directory(root, 1)));
  }
  EXPECT_THAT(loads.look(root.path()), IsEmpty());
  EXPECT_TRUE(fate_of(prune_by(*lease, {.keep_last = 1}, loads), 1).goes);
  EXPECT_FALSE(root::LoadMark(root / "elsewhere").is_made());
  EXPECT_FALSE(root::LoadMark(root / "unknown/checkpoint-1").is_made());
  const Faults faults("load.mark:errno=EACCES");
  EXPECT_FALSE(root::LoadMark(directory(root, 2)).is_made());
}

TEST(Loads, RunOutWhenNobodyRenewsThem) {
  const TempDir root;
  save_all(root, {1, 2});
  root::LeaseRecord record;  // of a load on another machine
  record.holder.process = {"far", "another boot", "", 7, 7};
  record.holder.nonce = "0123456789abcdef";
  record.lease_ms = 60'000;
  const fs::path mark = root / ".cairn/loading-1.0123456789abcdef";
  write_file(mark, root::encode_lease(record));
  ManualClock clock;
  root::LoadWatch loads(clock);
  EXPECT_TRUE(loads.look(root.path()).at(1).may_be_over);
  clock.jump(std::chrono::seconds(50));
  ++record.sequence;
  write_file(mark, root::encode_lease(record));
  EXPECT_FALSE(loads.look(root.path()).at(1).may_be_over);
  clock.jump(std::chrono::seconds(50));
  EXPECT_EQ(loads.look(root.path()).size(), 1u);
  EXPECT_TRUE(root::plan_prune(root.path(), {.keep_last = 1}, loads, kNowS).order.empty());
  clock.jump(std::chrono::seconds(11));
  EXPECT_THAT(loads.look(root.path()), IsEmpty());
  EXPECT_FALSE(fs::exists(mark));
}

TEST(Loads, CountWhereTheirMarkCannotBeRead) {
  const TempDir root;
  save_all(root, {1, 2});
  const root::LoadMark mark(directory(root, 1));
  const Faults faults("open:path=loading-:errno=EACCES");
  root::LoadWatch loads;
  EXPECT_THAT(loads.look(root.path()).at(1).words, HasSubstr("Permission denied"));
  EXPECT_TRUE(root::plan_prune(root.path(), {.keep_last = 1}, loads, kNowS).order.empty());
}

TEST(Loads, OfDeadProcessesDoNotCount) {
  const TempDir root;
  save_all(root, {1});
  root::LeaseRecord record;
  record.holder.process = os::this_process();
  record.holder.nonce = "0123456789abcdef";  // no load of this process has it
  record.lease_ms = 60'000;
  write_file(root / ".cairn/loading-1.0123456789abcdef", root::encode_lease(record));
  root::LoadWatch loads;
  EXPECT_THAT(loads.look(root.path()), IsEmpty());
  EXPECT_THAT(remains_in(root), IsEmpty());
}

/// The root of a read-only file system, for example: nothing keeps the step there.
TEST(Loads, OfAStepThatGoesAwaySaySo) {
  const TempDir root;
  const TempDir elsewhere;
  save_all(root, {1, 2});
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    RankState state(small_state(), Cut::kRows, communicator.rank(), 2);
    const Target target = state.targets().front();
    std::vector<std::byte> memory(1 << 20);
    try {
      opening::with_open(communicator, directory(root, 1), {}, [&](const opening::OpenCheckpoint& opened) {
        communicator.barrier();
        if (communicator.rank() == 0) fs::rename(directory(root, 1), elsewhere / "1");
        communicator.barrier();
        const std::uint32_t number = opened.stored.tensors.catalog().find(target.section, target.name).value();
        std::uint64_t bytes = bits_of(target.dtype) / 8;
        for (const std::uint64_t n : target.boxes.front().shape) bytes *= n;
        const plan::MemoryBox wanted{number, target.boxes.front(), std::span(memory).first(bytes)};
        checkpoint::Loader(communicator, opened, {"posix", 64 << 10, {}}).load({&wanted, 1});
        return 0;
      });
      ADD_FAILURE() << "it was loaded";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kNotFound) << error.what();
      EXPECT_EQ(error.missing(), Missing::kStep) << error.what();
    }
  });
}

TEST(Metrics, TravelWithTheSave) {
  const TempDir root;
  const auto lease = lease_of(root.path(), small_options());
  std::uint64_t saves = 0;
  for (const auto& [step, loss] : std::map<std::uint64_t, double>{{1, 3.5}, {2, 2.25}, {3, 2.75}, {4, NAN}}) {
    comm::run_simulated(1, [&, at = step, value = loss](comm::Communicator& communicator) {
      RankState state(small_state(), Cut::kRows, 0, 1);
      state.fill(static_cast<int>(at));
      io::WindowStore store;
      Options options = small_options();
      options.retention.keep_best = {{"loss"}};
      checkpoint::Saver saver(communicator, options, store);
      checkpoint::RootLife life{lease.get(), {}, saves++};
      const auto sources = state.sources();
      Extras extras;
      extras.metrics["loss"] = value;
      const Report report = saver.save(directory(root, at), at, sources, extras, &life);
      EXPECT_EQ(report.warnings.size(), at == 4 ? 1u : 0u);
      EXPECT_EQ(report.pruned.size(), at == 2 || at == 4 ? 1u : 0u) << at;
      EXPECT_EQ(report.freed_bytes != 0, at == 2 || at == 4);
    });
  }
  EXPECT_THAT(steps_in(root), ElementsAre(2, 4));
  EXPECT_EQ(root::look_at(directory(root, 2)).metrics.at("loss"), 2.25);
  EXPECT_TRUE(root::look_at(directory(root, 4)).metrics.empty());
}

TEST(Metrics, AFailedPruningDoesNotFailTheSave) {
  const TempDir root;
  save_all(root, {1, 2});
  const auto lease = lease_of(root.path(), small_options());
  for (const char* rule : {"prune.begin", "prune.delete", "rename:path=removed.", "unlink:path=removed."}) {
    comm::run_simulated(2, [&](comm::Communicator& communicator) {
      RankState state(small_state(), Cut::kRows, communicator.rank(), 2);
      state.fill(3);
      io::WindowStore store;
      Options options = small_options();
      options.overwrite = true;
      options.retention.keep_last = 1;
      checkpoint::Saver saver(communicator, options, store);
      checkpoint::RootLife life{communicator.rank() == 0 ? lease.get() : nullptr, {}, 0};
      const auto sources = state.sources();
      std::optional<Faults> faults;
      communicator.barrier();
      if (communicator.rank() == 0) faults.emplace(rule);
      communicator.barrier();
      const Report report = saver.save(directory(root, 3), 3, sources, {}, &life);
      EXPECT_EQ(report.warnings.empty(), communicator.rank() != 0) << rule;
      communicator.barrier();
      faults.reset();
    });
    EXPECT_EQ(root::newest_step(root.path()), 3u);
  }
}

}  // namespace
}  // namespace cairn::test
