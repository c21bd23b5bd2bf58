// A saver is presumed dead at some step of its save, another saver takes over, and the first saver continues: it must
// not publish or damage anything, and must name the root's new owner. Tested at every step, with and without flock and
// atomic exchange.
//
// The first saver runs on threads of this process and is paused at a step. Then the test marks its record as released,
// so that the second saver takes over without waiting for a lease time. (lease_test.cpp waits,
// and tests/fault stops processes.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <thread>

#include "cairn/error.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "root/commit.hpp"
#include "root/root_state.hpp"
#include "simulated_save.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kRanks = 2;
constexpr int kOld = 1;
constexpr int kZombies = 2;
constexpr int kTakers = 3;

Options options_with(bool overwrite) {
  Options options = small_options();
  options.overwrite = overwrite;
  return options;
}

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

struct Interleaving {
  const char* point;  ///< where the first saver stops
  bool can_exchange = true;
  bool can_lock = true;
};

/// Makes observers believe that the lease is free, whoever holds it.
void pretend_released(const TempDir& root) {
  for (int epoch = 9; epoch > 0; --epoch) {
    const fs::path path = root / ".cairn" / ("epoch-" + std::to_string(epoch));
    if (!fs::exists(path)) continue;
    auto record = root::decode_lease(read_file(path)).value_or(root::LeaseRecord{});
    record.is_released = true;
    return write_file(path, root::encode_lease(record));
  }
}

/// The result of the first saver's save: the message of its Error, or "", and the Error's kind.
struct Outcome {
  std::string error;
  ErrorKind kind = ErrorKind::kInternal;
};

/// The first saver saves step 5 and is paused at `how.point`; `meanwhile` then runs as the second saver.
template <class Meanwhile>
Outcome interleave(const TempDir& root, const TempDir& signals, const Interleaving& how, bool overwrite,
                   Meanwhile meanwhile) {
  const fs::path go = signals / "go";
  std::string rules = std::string(how.point) + ":rank=0:times=1:pause=" + go.string();
  if (!how.can_exchange) rules += ";exchange:errno=EINVAL";
  if (!how.can_lock) rules += ";flock:errno=ENOLCK";
  const Faults faults(rules);
  Outcome outcome;
  std::thread first([&] {
    try {
      const auto lease = lease_of(root.path(), options_with(overwrite));
      save_simulated_by(*lease, 5, Cut::kRows, kRanks, options_with(overwrite), kZombies);
    } catch (const Error& error) {
      outcome = {error.what(), error.kind()};
    }
  });
  wait_until_paused(go);
  pretend_released(root);
  meanwhile();
  write_file(go, "");
  first.join();
  return outcome;
}

/// The second saver, kept alive until the end of the test.
class Taker {
 public:
  explicit Taker(const TempDir& root) : lease_(lease_of(root.path(), options_with(true))) {}
  void save(std::uint64_t step) { save_simulated_by(*lease_, step, Cut::kMixed, kRanks, options_with(true), kTakers); }

 private:
  std::unique_ptr<root::Lease> lease_;
};

void save_old(const TempDir& root, std::uint64_t step) {
  const auto lease = lease_of(root.path(), small_options());
  save_simulated_by(*lease, step, Cut::kMixed, kRanks, small_options(), kOld);
}

/// Steps before the rename: the first saver's checkpoint never becomes visible.
const char* const kBeforeTheRename[] = {
    "commit.begin",  "open:path=.safetensors", "write:path=.safetensors", "fsync:path=.safetensors",
    "commit.carry",  "commit.blocks",          "commit.manifest",         "commit.sync",
    "commit.rename", "commit.rename.looked"};

class Zombie : public testing::TestWithParam<std::pair<bool, bool>> {
 protected:
  [[nodiscard]] Interleaving at(const char* point) const { return {point, GetParam().first, GetParam().second}; }

  /// The first saver must name the new owner of the root.
  static void expect_named(const Outcome& outcome, const TempDir& root) {
    EXPECT_EQ(outcome.kind, ErrorKind::kState) << outcome.error;
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("another saver has taken over '" + root.path().string() + "'"),
                                     HasSubstr(os::this_process().host)));
    EXPECT_EQ(outcome.error.find('\n'), std::string::npos);
  }

  static void expect_root(const TempDir& root, std::set<std::string> steps, const std::string& latest) {
    steps.insert({root::kLatestFile, ".cairn"});
    EXPECT_EQ(names_in(root.path()), steps);
    EXPECT_EQ(read_file(root / root::kLatestFile), latest);
    for (const std::string& name : names_in(root / ".cairn")) {
      EXPECT_THAT(name, testing::AnyOf(testing::StartsWith("epoch-"), "state.json"));
    }
  }
};

TEST_P(Zombie, ThatSavesANewStepDoesNotPublishIt) {
  for (const char* point : kBeforeTheRename) {
    SCOPED_TRACE(point);
    const TempDir root;
    const TempDir signals;
    save_old(root, 1);
    Taker taker(root);
    const Outcome outcome = interleave(root, signals, at(point), false, [&] { taker.save(6); });
    expect_named(outcome, root);
    expect_root(root, {"checkpoint-1", "checkpoint-6"}, "6\n");
    expect_loads(root / "checkpoint-6", kTakers, Cut::kRows, 3);
    taker.save(7);
    expect_root(root, {"checkpoint-1", "checkpoint-6", "checkpoint-7"}, "7\n");
  }
}

TEST_P(Zombie, ThatSavesTheSameStepDoesNotReplaceTheOtherOne) {
  for (const char* point : kBeforeTheRename) {
    SCOPED_TRACE(point);
    const TempDir root;
    const TempDir signals;
    save_old(root, 1);
    Taker taker(root);
    const Outcome outcome = interleave(root, signals, at(point), true, [&] { taker.save(5); });
    expect_named(outcome, root);
    expect_root(root, {"checkpoint-1", "checkpoint-5"}, "5\n");
    expect_loads(root / "checkpoint-5", kTakers, Cut::kRows, 3);
  }
}

TEST_P(Zombie, ThatOverwritesDoesNotReplaceWhatTheOtherOneSaved) {
  std::vector<const char*> points(std::begin(kBeforeTheRename), std::end(kBeforeTheRename));
  if (!GetParam().first) points.insert(points.end(), {"commit.replace.looked", "commit.replaced"});
  for (const char* point : points) {
    SCOPED_TRACE(point);
    const TempDir root;
    const TempDir signals;
    save_old(root, 5);
    Taker taker(root);
    const Outcome outcome = interleave(root, signals, at(point), true, [&] {
      expect_loads(root / "checkpoint-5", kOld, Cut::kRows, 3);
      taker.save(5);
      expect_loads(root / "checkpoint-5", kTakers, Cut::kRows, 3);
    });
    expect_named(outcome, root);
    expect_root(root, {"checkpoint-5"}, "5\n");
    expect_loads(root / "checkpoint-5", kTakers, Cut::kRows, 3);
  }
}

TEST_P(Zombie, ThatOverwritesLeavesTheOldOneWhenTheOtherSavesElsewhere) {
  std::vector<const char*> points(std::begin(kBeforeTheRename), std::end(kBeforeTheRename));
  if (!GetParam().first) points.insert(points.end(), {"commit.replace.looked", "commit.replaced"});
  for (const char* point : points) {
    SCOPED_TRACE(point);
    const TempDir root;
    const TempDir signals;
    save_old(root, 5);
    Taker taker(root);
    const Outcome outcome = interleave(root, signals, at(point), true, [&] {
      taker.save(6);
      expect_loads(root / "checkpoint-5", kOld, Cut::kRows, 3);
    });
    expect_named(outcome, root);
    expect_root(root, {"checkpoint-5", "checkpoint-6"}, "6\n");
    expect_loads(root / "checkpoint-5", kOld, Cut::kRows, 3);
  }
}

TEST_P(Zombie, ThatIsVisibleAlreadyDoesNotMoveThePointerBack) {
  for (const char* point : {"commit.publish", "commit.latest", "commit.latest.looked"}) {
    SCOPED_TRACE(point);
    const TempDir root;
    const TempDir signals;
    save_old(root, 1);
    Taker taker(root);
    const Outcome outcome = interleave(root, signals, at(point), false, [&] { taker.save(6); });
    expect_named(outcome, root);
    EXPECT_THAT(outcome.error, HasSubstr("is complete, but the file that names the latest was not written"));
    expect_root(root, {"checkpoint-1", "checkpoint-5", "checkpoint-6"}, "6\n");
    expect_loads(root / "checkpoint-5", kZombies, Cut::kRows, 3);
    expect_loads(root / "checkpoint-6", kTakers, Cut::kRows, 3);
  }
}

TEST_P(Zombie, ThatHasReplacedAlreadyRemovesNothingOfTheOtherOne) {
  for (const char* point : {"commit.publish", "commit.latest.looked"}) {
    SCOPED_TRACE(point);
    const TempDir root;
    const TempDir signals;
    save_old(root, 5);
    Taker taker(root);
    const Outcome outcome = interleave(root, signals, at(point), true, [&] {
      expect_loads(root / "checkpoint-5", kZombies, Cut::kRows, 3);
      taker.save(5);
    });
    expect_named(outcome, root);
    expect_root(root, {"checkpoint-5"}, "5\n");
    expect_loads(root / "checkpoint-5", kTakers, Cut::kRows, 3);
  }
}

TEST_P(Zombie, ThatWasTakingTheLeaseDoesNotGetIt) {
  for (const char* point : {"lease.take", "lease.taken"}) {
    SCOPED_TRACE(point);
    const TempDir root;
    const TempDir signals;
    save_old(root, 1);
    Taker taker(root);
    const Outcome outcome = interleave(root, signals, at(point), false, [&] { taker.save(6); });
    EXPECT_EQ(outcome.kind, ErrorKind::kState) << outcome.error;
    EXPECT_THAT(outcome.error, HasSubstr("another saver"));
    expect_root(root, {"checkpoint-1", "checkpoint-6"}, "6\n");
    taker.save(7);
  }
}

TEST_P(Zombie, ThatWasClearingTheRootClearsNothingOfTheOtherOne) {
  for (const char* point : {"takeover.looked", "takeover.settle"}) {
    SCOPED_TRACE(point);
    const TempDir root;
    const TempDir signals;
    save_old(root, 5);
    // Leftovers of a third saver that was replacing step 5.
    const fs::path container = root::replaced_directory(root / "checkpoint-5", "0123456789abcdef");
    fs::create_directory(container);
    fs::rename(root / "checkpoint-5", container / "checkpoint-5");
    fs::create_directory(root::partial_directory(root / "checkpoint-5", "0123456789abcdef"));
    Taker taker(root);
    const Outcome outcome = interleave(root, signals, at(point), true, [&] {
      expect_loads(root / "checkpoint-5", kOld, Cut::kRows, 3);
      taker.save(6);
      expect_loads(root / "checkpoint-5", kOld, Cut::kRows, 3);
    });
    expect_named(outcome, root);
    taker.save(7);
    expect_loads(root / "checkpoint-5", kOld, Cut::kRows, 3);
    expect_root(root, {"checkpoint-5", "checkpoint-6", "checkpoint-7"}, "7\n");
  }
}

// Atomic exchange and locks are independent, so testing with both and with neither is enough.
INSTANTIATE_TEST_SUITE_P(OnFileSystems, Zombie, testing::Values(std::pair(true, true), std::pair(false, false)),
                         [](const auto& how) { return std::string(how.param.first ? "WithBoth" : "WithNeither"); });

TEST(Overwriting, ALoadFindsTheOldOrTheNewOneAtEveryMoment) {
  for (const bool can_exchange : {true, false}) {
    const TempDir root;
    const Faults faults(can_exchange ? "" : "exchange:errno=EINVAL");
    save_old(root, 5);
    std::atomic<bool> is_done = false;
    std::thread saver([&] {
      const auto lease = lease_of(root.path(), options_with(true));
      for (int n = 0; n < 20; ++n) {
        save_simulated_by(*lease, 5, Cut::kMixed, kRanks, options_with(true), n + 1);
      }
      is_done = true;
    });
    int loads = 0;
    while (!is_done) {
      try {
        const auto opened = opening::open_here(root / "checkpoint-5");
        EXPECT_TRUE(opened.manifest);
        EXPECT_EQ(root::newest_step(root.path()), 5U);
        ++loads;
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
    saver.join();
    EXPECT_GT(loads, 0);
  }
}

}  // namespace
}  // namespace cairn::test
