// The start of calls: valid communicators, time limits, and the check that all ranks are in the same call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "cairn/log.hpp"
#include "cairn/staging.hpp"
#include "expect_error.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

Options options_of_limit(double seconds) {
  Options options = options_for_small_state();
  options.waiting.limit_s = seconds;
  return options;
}

/// Collects this rank's warnings and errors while the object exists.
class Heard {
 public:
  Heard() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      const std::lock_guard lock(mutex_);
      if (level >= LogLevel::kWarning) lines_ += std::string(line) + "; ";
    });
  }
  ~Heard() { set_log_sink({}); }
  Heard(const Heard&) = delete;
  Heard& operator=(const Heard&) = delete;
  std::string lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::string lines_;
};

/// The ranks no longer agree on the next operation on the communicator: a late rank is still in the middle of the
/// first call.
TEST(Limits, OfACommunicatorOnWhichACallWasGivenUpNothingIsMade) {
  const World world;
  const SharedTempDir root;
  MPI_Comm lost = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &lost);
  const auto make = [&] { const Checkpointer made(lost, root.path(), options_of_limit(0.5)); };
  if (world.rank == 0) expect_error(ErrorKind::kState, make, {"did not come to this call within 0.5 s"});
  MPI_Barrier(MPI_COMM_WORLD);
  if (world.rank != 0) expect_error(ErrorKind::kState, make, {"did not come to this call within 0.5 s"});
  for (int time = 0; time < 2; ++time) {
    expect_error(ErrorKind::kState, make, {"an earlier call on this communicator was given up"});
  }
  EXPECT_NO_THROW(Checkpointer(MPI_COMM_WORLD, root.path(), options_of_limit(100)));
}

/// Most programs ignore the report, so warnings are also logged.
TEST(Warnings, OfASaveStandInTheLogAsWell) {
  const World world;
  const SharedTempDir root;
  Options options = options_for_small_state();
  options.frozen = {{{"nothing-of-this"}, {}}};
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  RankState state(small_state(), Cut::kRows, world.rank, world.ranks);
  state.fill(1);
  Heard heard;
  const Report report = checkpointer.save(1, state.sources());
  EXPECT_THAT(report.warnings, testing::Contains(testing::HasSubstr("nothing-of-this")));
  EXPECT_EQ(heard.lines().find("nothing-of-this") != std::string::npos, world.rank == 0) << heard.lines();
}

TEST(Limits, HoweverLongTheEndIsWaitedFor) {
  const SharedTempDir root;
  for (const double seconds : {1e10, 1e30, 1e300}) {
    Heard heard;
    {
      Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_of_limit(seconds));
      EXPECT_EQ(checkpointer.latest(), std::nullopt);
    }
    EXPECT_EQ(heard.lines(), "") << seconds;
  }
}

TEST(Given, NoCommunicatorAtAll) {
  const SharedTempDir root;
  const Options options = options_of_limit(20);
  const auto refused = [](const std::function<void()>& call) {
    expect_error(ErrorKind::kUsage, call, {"the communicator is MPI_COMM_NULL", "give one of the ranks"});
  };
  refused([&] { Checkpointer(MPI_COMM_NULL, root.path(), options); });
  refused([&] { stage(MPI_COMM_NULL, root / "staged", {}, options); });
  refused([&] { load_from(MPI_COMM_NULL, root.path(), {}, options); });
}

TEST(Given, AnIntercommunicator) {
  const World world;
  const SharedTempDir root;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world.rank % 2, world.rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - world.rank % 2, 1, &between);
  expect_error(ErrorKind::kUsage, [&] { Checkpointer(between, root.path(), options_of_limit(20)); },
               {"is an intercommunicator", "MPI_Intercomm_merge"});
  MPI_Comm_free(&between);
  MPI_Comm_free(&half);
}

void end_all(MPI_Comm* /*communicator*/, int* code, ...) { ADD_FAILURE() << "MPI error " << *code; }

/// The program's own error handler stays installed, and is not called.
TEST(Given, ItsErrorHandlerStays) {
  const SharedTempDir root;
  MPI_Comm given = MPI_COMM_NULL;
  MPI_Errhandler own = MPI_ERRHANDLER_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &given);
  MPI_Comm_create_errhandler(end_all, &own);
  MPI_Comm_set_errhandler(given, own);
  { const Checkpointer checkpointer(given, root.path(), options_of_limit(20)); }
  MPI_Errhandler after = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(given, &after);
  EXPECT_EQ(after, own);
  MPI_Errhandler_free(&after);
  MPI_Errhandler_free(&own);
  MPI_Comm_free(&given);
}

TEST(Given, AnEmptyRoot) {
  expect_error(ErrorKind::kUsage, [] { Checkpointer(MPI_COMM_WORLD, "", options_of_limit(20)); },
               {"the root is empty; give the path of a directory"});
}

TEST(Given, ACheckpointForARoot) {
  const SharedTempDir root;
  std::vector<float> values = {1, 2};
  const Source source{{"model", "w", DType::kF32, {2}, {{{0}, {2}}}}, values.data()};
  Checkpointer(MPI_COMM_WORLD, root.path()).save(7, std::vector<Source>{source});
  expect_error(ErrorKind::kUsage, [&] { Checkpointer(MPI_COMM_WORLD, root / "checkpoint-7"); },
               {"checkpoint-7' is a checkpoint", "give '" + root.path().string() + "'"});
}

/// A program can make such a dtype with a cast from a number.
TEST(Given, ADTypeThatIsNone) {
  const World world;
  const SharedTempDir root;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_of_limit(20));
  RankState state(small_state(), Cut::kReplicated, world.rank, world.ranks);
  state.fill(1);
  checkpointer.save(1, state.sources());
  auto sources = state.sources();
  auto targets = state.targets();
  const std::string named = "tensor '" + sources.back().name + "' (section " + sources.back().section +
                            "): its dtype has the value 200, which is none of DType";
  if (world.rank == world.ranks - 1) sources.back().dtype = targets.back().dtype = static_cast<DType>(200);
  expect_error(ErrorKind::kUsage, [&] { checkpointer.save(2, sources); }, {named});
  expect_error(ErrorKind::kUsage, [&] { static_cast<void>(checkpointer.save_async(2, sources)); }, {named});
  expect_error(ErrorKind::kUsage, [&] { checkpointer.load(1, targets); }, {named});
}

/// A public call on a Checkpointer that has saved step 1.
struct Named {
  std::string name;
  std::function<void(Checkpointer&, RankState&)> call;
};

std::vector<Named> calls() {
  return {
      {"save", [](Checkpointer& c, RankState& s) { c.save(2, s.sources()); }},
      {"save_async", [](Checkpointer& c, RankState& s) { static_cast<void>(c.save_async(2, s.sources())); }},
      {"prepare_async", [](Checkpointer& c, RankState& s) { c.prepare_async(s.sources()); }},
      {"release_memory", [](Checkpointer& c, RankState&) { c.release_memory(); }},
      {"latest", [](Checkpointer& c, RankState&) { static_cast<void>(c.latest()); }},
      {"steps", [](Checkpointer& c, RankState&) { static_cast<void>(c.steps()); }},
      {"tensors", [](Checkpointer& c, RankState&) { static_cast<void>(c.tensors(1)); }},
      {"load", [](Checkpointer& c, RankState& s) { c.load(1, s.targets()); }},
      {"load_latest", [](Checkpointer& c, RankState& s) { c.load_latest(s.targets()); }},
      {"load_latest of TargetsOf",
       [](Checkpointer& c, RankState& s) {
         c.load_latest([&](std::uint64_t, std::span<const TensorInfo>) { return s.targets(); });
       }},
      {"load_extras", [](Checkpointer& c, RankState&) { static_cast<void>(c.load_extras(1)); }},
      {"load_rank_blob", [](Checkpointer& c, RankState&) { static_cast<void>(c.load_rank_blob(1, std::nullopt)); }},
      {"load_carried", [](Checkpointer& c, RankState&) { c.load_carried(1, "a.json", [](auto) {}); }},
  };
}

/// The last rank makes a call that differs from the others', after a synchronous or asynchronous save. Then all ranks
/// continue together.
TEST(DifferentCalls, EndOnAllRanks) {
  const World world;
  for (const bool is_async : {false, true}) {
    const SharedTempDir root;
    Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_of_limit(20));
    RankState state(small_state(), Cut::kRows, world.rank, world.ranks);
    state.fill(1);
    if (is_async) {
      static_cast<void>(checkpointer.save_async(1, state.sources()).wait());
    } else {
      checkpointer.save(1, state.sources());
    }
    const auto all = calls();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Named& first = all[i];
      const Named& other = all[(i + 1) % all.size()];
      const int last = world.ranks - 1;
      expect_error(ErrorKind::kUsage, [&] { (world.rank == last ? other : first).call(checkpointer, state); },
                   {"rank 0 is in " + first.name + ",", "rank " + std::to_string(last) + " in " + other.name + ";",
                    "all ranks must make the same calls"});
    }
    EXPECT_EQ(checkpointer.latest(), 1U);
    checkpointer.save(2, state.sources());
  }
}

/// The object's destructor runs on one rank only, for example after an exception in the program.
TEST(DifferentCalls, OneRankEndsItsCheckpointer) {
  const World world;
  for (const bool is_async : {false, true}) {
    const SharedTempDir root;
    RankState state(small_state(), Cut::kRows, world.rank, world.ranks);
    auto checkpointer = std::make_unique<Checkpointer>(MPI_COMM_WORLD, root.path(), options_of_limit(20));
    if (is_async) checkpointer->prepare_async(state.sources());
    Heard heard;
    if (world.rank == 0) {
      checkpointer.reset();
      EXPECT_THAT(heard.lines(), testing::HasSubstr("rank 0 is in ~Checkpointer, rank 1 in save;"));
      continue;
    }
    const auto save = [&] { checkpointer->save(1, state.sources()); };
    expect_error(ErrorKind::kUsage, save, {"rank 0 is in ~Checkpointer, rank 1 in save;"});
    expect_error(ErrorKind::kState, save, {"gave each other up before", "rank 0 is in ~Checkpointer"});
  }
}

TEST(DifferentCalls, FunctionsOnACommunicator) {
  const World world;
  const SharedTempDir root;
  const Options options = options_of_limit(20);
  expect_error(ErrorKind::kUsage,
               [&] {
                 if (world.rank == 0) {
                   stage(MPI_COMM_WORLD, root / "staged", {}, options);
                 } else {
                   load_from(MPI_COMM_WORLD, root / "staged", {}, options);
                 }
               },
               {"rank 0 is in stage, rank 1 in load_from;"});
  expect_error(ErrorKind::kUsage,
               [&] {
                 if (world.rank == 0) {
                   load_from(MPI_COMM_WORLD, root / "staged", {}, options);
                 } else {
                   Checkpointer(MPI_COMM_WORLD, root.path(), options);
                 }
               },
               {"rank 0 is in load_from, rank 1 in Checkpointer;"});
}

}  // namespace
}  // namespace cairn::test
