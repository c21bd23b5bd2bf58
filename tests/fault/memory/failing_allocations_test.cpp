// Any allocation of one rank fails, inside any call: either all ranks throw the same Error or none does;
// no rank waits for the limit, and only a few failures make the object unusable. The allocations are counted first;
// then some of them fail, one in each call (all of them with CAIRN_TEST_ALL_ALLOCATIONS).
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cairn/error.hpp"
#include "cairn/log.hpp"
#include "failing_allocation.hpp"
#include "random.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

constexpr double kLimitSeconds = 600;
/// Number of allocations that are made to fail, for each call, rank and engine.
constexpr std::uint64_t kSamples = 40;
/// The first allocations are always included, since they come before the ranks agree on anything.
constexpr std::uint64_t kFirst = 4;

Options options_for(const std::string& engine) {
  Options options = options_for_small_state(engine);
  options.overwrite = true;
  options.waiting.limit_s = kLimitSeconds;
  return options;
}

std::vector<StateTensor> tiny_state() {
  return {{"model", "w", DType::kF32, {8, 3000}}, {"optimizer", "w.m", DType::kF32, {8, 5}}};
}

struct Outcome {
  bool has_failed = false;  ///< the chosen allocation failed, on the chosen rank
  std::uint64_t allocations = 0;
  bool has_thrown = false;
  /// The ranks could not agree: the failing rank notified the others, and the object is unusable.
  bool is_dead = false;
  std::string text;  ///< message of the Error
};

/// Collective: `call` with allocation `n` (0: none) failing on the rank.
Outcome call_with(std::uint64_t n, int rank, const std::function<void()>& call) {
  const World world;
  Outcome outcome;
  std::string text;
  const double start = MPI_Wtime();
  FailingAllocation failing(world.rank == rank ? n : 0);
  try {
    call();
    failing.stop();
  } catch (const Error& error) {
    failing.stop();
    text = error.what();
    outcome.has_thrown = true;
    outcome.is_dead = error.kind() == ErrorKind::kState;
    EXPECT_NE(text, "");
  } catch (const std::exception& error) {
    failing.stop();
    ADD_FAILURE() << "no Error, but " << error.what();
    MPI_Abort(MPI_COMM_WORLD, 1);  // the other ranks may wait for this one
  }
  EXPECT_LT(MPI_Wtime() - start, kLimitSeconds / 2) << text;
  std::uint64_t facts[] = {failing.has_failed() ? 1U : 0U, failing.allocations(), text.size()};
  MPI_Bcast(facts, 3, MPI_UINT64_T, rank, MPI_COMM_WORLD);
  outcome.has_failed = facts[0] != 0;
  outcome.allocations = facts[1];
  std::string theirs = text;
  theirs.resize(facts[2]);
  MPI_Bcast(theirs.data(), static_cast<int>(theirs.size()), MPI_CHAR, rank, MPI_COMM_WORLD);
  EXPECT_EQ(text, theirs);
  if (outcome.has_thrown) {
    EXPECT_NE(text.find("memory"), std::string::npos) << text;
    if (text.find("std::bad_alloc") != std::string::npos) {  // how much, of what, and what to do
      EXPECT_NE(text.find("; this process holds "), std::string::npos) << text;
      EXPECT_NE(text.find("smaller memory budget (--memory)"), std::string::npos) << text;
    }
  }
  outcome.text = std::move(text);
  return outcome;
}

/// The numbers of the allocations to fail.
std::vector<std::uint64_t> samples_of(std::uint64_t allocations, std::mt19937_64& random) {
  std::vector<std::uint64_t> numbers;
  if (allocations <= kSamples || std::getenv("CAIRN_TEST_ALL_ALLOCATIONS") != nullptr) {
    for (std::uint64_t n = 1; n <= allocations; ++n) numbers.push_back(n);
    return numbers;
  }
  for (std::uint64_t n = 1; n <= kFirst; ++n) numbers.push_back(n);
  for (std::uint64_t i = 0; i < kSamples - kFirst; ++i) {
    const std::uint64_t rest = allocations - kFirst, parts = kSamples - kFirst;
    numbers.push_back(kFirst + uniform(random, 1 + i * rest / parts, (i + 1) * rest / parts));
  }
  return numbers;
}

class FailingAllocations : public testing::TestWithParam<const char*> {
 protected:
  FailingAllocations() {
    state_.fill(1);
    sources_ = state_.sources();
  }

  /// `prepare` makes the objects that `call` needs, and no allocation fails there. The object may be dead after at most
  /// `dead_at_most` of the failures: those outside a step, for example of a reader, whose constructor is collective.
  void fail_each(const char* what, const std::function<void()>& prepare, const std::function<void()>& call,
                 std::uint64_t dead_at_most = 1) {
    std::mt19937_64 random = make_random();
    for (int rank = 0; rank < world_.ranks; ++rank) {
      prepare();
      const Outcome whole = call_with(0, rank, call);
      ASSERT_FALSE(whole.has_thrown);
      if (rank != 0 && whole.allocations == 0) continue;  // rank 0 works alone in this call
      ASSERT_GT(whole.allocations, rank == 0 ? 10U : 2U);
      std::uint64_t failed = 0;
      std::uint64_t thrown = 0;
      std::uint64_t dead = 0;
      std::string deaths;
      for (const std::uint64_t n : samples_of(whole.allocations, random)) {
        SCOPED_TRACE(std::string(what) + ": allocation " + std::to_string(n) + " of " +
                     std::to_string(whole.allocations) + " on rank " + std::to_string(rank));
        prepare();
        const Outcome outcome = call_with(n, rank, call);
        failed += outcome.has_failed ? 1 : 0;
        thrown += outcome.has_thrown ? 1 : 0;
        dead += outcome.is_dead ? 1 : 0;
        if (outcome.is_dead) deaths += "\nallocation " + std::to_string(n) + ": " + outcome.text;
      }
      EXPECT_GT(failed, std::min(kSamples, whole.allocations) / 2)
          << "the allocations that were to fail are not made any more";
      EXPECT_GT(thrown, failed / 2);
      EXPECT_LE(dead, dead_at_most) << "on rank " << rank << deaths;
      prepare();
      EXPECT_FALSE(call_with(0, rank, call).has_thrown);
    }
  }
  void make_checkpointer() {
    checkpointer_.reset();  // releases the lease
    MPI_Barrier(MPI_COMM_WORLD);
    checkpointer_.emplace(MPI_COMM_WORLD, root_.path(), options_);
  }

  World world_;
  SharedTempDir root_;
  Options options_ = options_for(GetParam());
  RankState state_{tiny_state(), Cut::kRows, world_.rank, world_.ranks};
  std::vector<Source> sources_;  // prepared in advance: their allocations are the test's own
  std::optional<Checkpointer> checkpointer_;
};

TEST_P(FailingAllocations, OfAFirstSave) {
  fail_each(
      "save", [&] { make_checkpointer(); }, [&] { checkpointer_->save(1, sources_); });
}

TEST_P(FailingAllocations, OfALaterSave) {
  const auto prepare = [&] {
    make_checkpointer();
    checkpointer_->save(1, sources_);
  };
  fail_each("save again", prepare, [&] { checkpointer_->save(1, sources_); });
}

TEST_P(FailingAllocations, OfALoad) {
  make_checkpointer();
  checkpointer_->save(1, sources_);
  RankState loaded(tiny_state(), Cut::kColumns, world_.rank, world_.ranks);
  const std::vector<Target> targets = loaded.targets();
  fail_each(
      "load", [&] { make_checkpointer(); }, [&] { checkpointer_->load(1, targets); });
  checkpointer_->load(1, targets);
  EXPECT_EQ(loaded.matching_bytes(1), loaded.bytes());
}

INSTANTIATE_TEST_SUITE_P(Engines, FailingAllocations, testing::Values("auto", "direct", "mpiio"));

class FailingAllocationsOnce : public FailingAllocations {};

TEST_P(FailingAllocationsOnce, OfTheConstructor) {
  std::filesystem::path root;
  Options options;
  const auto prepare = [&] {
    checkpointer_.reset();
    MPI_Barrier(MPI_COMM_WORLD);
    root = root_.path();
    options = options_;
  };
  // Arguments are passed by value, so the caller makes their copies.
  fail_each("constructor", prepare,
            [&] { checkpointer_.emplace(MPI_COMM_WORLD, std::move(root), std::move(options)); });
}

TEST_P(FailingAllocationsOnce, OfTheSmallCalls) {
  make_checkpointer();
  const std::string name = "trainer_state.json";
  Extras extras;
  extras.carry_texts = {{name, "{}"}};
  extras.rank_blob.resize(10);
  checkpointer_->save(1, sources_, extras);
  fail_each(
      "latest", [&] { make_checkpointer(); }, [&] { static_cast<void>(checkpointer_->latest()); });
  fail_each(
      "load_extras", [&] { make_checkpointer(); }, [&] { static_cast<void>(checkpointer_->load_extras(1)); });
  fail_each(
      "load_rank_blob", [&] { make_checkpointer(); }, [&] { static_cast<void>(checkpointer_->load_rank_blob(1, 0)); });
  fail_each(
      "load_carried", [&] { make_checkpointer(); },
      [&] { checkpointer_->load_carried(1, name, [](std::span<const std::byte>) {}); });
  fail_each(
      "steps", [&] { make_checkpointer(); }, [&] { static_cast<void>(checkpointer_->steps()); });
  fail_each(
      "tensors", [&] { make_checkpointer(); }, [&] { static_cast<void>(checkpointer_->tensors(1)); });
}

/// Lack of memory is not damage: either the call fails, or it loads the usual step.
TEST_P(FailingAllocationsOnce, OfALoadOfTheLatest) {
  make_checkpointer();
  for (const std::uint64_t step : {1U, 2U}) checkpointer_->save(step, sources_);
  RankState loaded(tiny_state(), Cut::kColumns, world_.rank, world_.ranks);
  const std::vector<Target> targets = loaded.targets();
  std::uint64_t expected = 2;
  const auto load = [&] {
    const Report report = checkpointer_->load_latest(targets);
    EXPECT_EQ(report.step, expected);
    EXPECT_EQ(report.skipped.size(), 2 - expected);
  };
  fail_each(
      "load_latest", [&] { make_checkpointer(); }, load);
  const auto damage = [&] {
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_.rank == 0) std::filesystem::resize_file(root_ / "checkpoint-2" / "cairn.blocks", 10);
    MPI_Barrier(MPI_COMM_WORLD);
  };
  damage();
  expected = 1;
  set_log_sink([](LogLevel, std::string_view) {});  // silences the line of each call
  constexpr std::uint64_t kToAgreeOnAnError = 10;   // allocations to agree on the error about a damaged step
  fail_each(
      "load_latest of a damaged one", [&] { make_checkpointer(); }, load, kToAgreeOnAnError);
  const auto damage_and_load = [&] {
    make_checkpointer();
    damage();
    load();
  };
  fail_each("save of the step that was damaged", damage_and_load, [&] { checkpointer_->save(2, sources_); });
  set_log_sink({});
}

/// The parts of an asynchronous save are made on all ranks or on none: the next save of the same object works.
TEST_P(FailingAllocationsOnce, OfAFirstAsynchronousSave) {
  SaveTicket ticket;
  const auto prepare = [&] {
    ticket = SaveTicket();
    if (checkpointer_) {
      const double start = MPI_Wtime();
      try {
        checkpointer_->save(1, sources_);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kState) << error.what();  // the object is already dead
      }
      EXPECT_LT(MPI_Wtime() - start, kLimitSeconds / 2);
    }
    make_checkpointer();
  };
  fail_each("save_async", prepare, [&] { ticket = checkpointer_->save_async(1, sources_); });
  ticket.wait();
  EXPECT_EQ(checkpointer_->latest(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Engines, FailingAllocationsOnce, testing::Values("auto"));

}  // namespace
}  // namespace cairn::test
