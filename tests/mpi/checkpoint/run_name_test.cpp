// The run that owns a root: a run keeps its name across restarts, and saves into another run's root
// only with permission.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "cairn/checkpoint.hpp"
#include "environment.hpp"
#include "expect_error.hpp"
#include "format/manifest.hpp"
#include "same_text.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

class RunName : public testing::Test {
 protected:
  [[nodiscard]] Checkpointer make(const std::string& run = "", bool allow_other_run = false) const {
    return make_in("root", run, allow_other_run);
  }
  [[nodiscard]] Checkpointer make_in(const char* root, const std::string& run, bool allow_other_run = false) const {
    Options options;
    options.engine.name = "posix";
    options.run_id = run;
    options.allow_other_run = allow_other_run;
    return {MPI_COMM_WORLD, root_ / root, options};
  }
  void save(Checkpointer& checkpointer, std::uint64_t step) const {
    checkpointer.save(step, std::vector<Source>{{shard_, values_.data()}});
  }
  /// Saves in a separate life.
  void live(Checkpointer checkpointer, std::uint64_t step) const { save(checkpointer, step); }

  /// Collective: `work` on rank 0, before any other rank continues.
  void on_rank_0(const std::function<void()>& work) const {
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_.rank == 0) work();
    MPI_Barrier(MPI_COMM_WORLD);
  }
  /// On rank 0: the run's name in a step's manifest (run_of) and in state.json (noted).
  std::string run_of(std::uint64_t step) const {
    const fs::path path = root_ / "root" / ("checkpoint-" + std::to_string(step)) / "cairn.json";
    std::string run;
    on_rank_0([&] { run = format::parse_manifest(read_file(path), path.string()).run_id; });
    return run;
  }
  std::string noted() const {
    std::string run;
    on_rank_0([&] {
      const fs::path path = root_ / "root/.cairn/state.json";
      run = base::Json::parse(read_file(path), path.string()).at("run_id").text();
    });
    return run;
  }
  std::set<std::string> everything() const {
    std::set<std::string> names;
    on_rank_0([&] {
      for (const auto& entry : fs::recursive_directory_iterator(root_ / "root")) names.insert(entry.path().string());
    });
    return names;
  }
  void expect_refused(Checkpointer checkpointer, std::uint64_t step, std::initializer_list<std::string_view> parts) {
    const auto before = everything();
    const std::string text = message_of_error(ErrorKind::kState, [&] { save(checkpointer, step); });
    expect_one_line(text, parts);
    expect_same_everywhere(text);
    expect_error(
        ErrorKind::kState,
        [&] {
          static_cast<void>(checkpointer.save_async(step, std::vector<Source>{{shard_, values_.data()}}).wait());
        },
        parts);
    EXPECT_EQ(everything(), before) << "not even the lease is taken";
  }

  const World world_;
  SharedTempDir root_;
  const Shard shard_{"model", "w", DType::kF32, {3}, {{{0}, {3}}}};
  const std::vector<float> values_ = {1, 2, 3};
};

TEST_F(RunName, IsMadeOnceAndKept) {
  std::set<std::string> names;
  live(make(), 1);
  names.insert(run_of(1));
  names.insert(noted());
  live(make(), 2);  // another life
  names.insert(run_of(2));
  on_rank_0([&] { fs::remove(root_ / "root/.cairn/state.json"); });
  live(make(), 3);
  names.insert(run_of(3));
  names.insert(noted());
  on_rank_0([&] {
    for (const char* step : {"checkpoint-1", "checkpoint-2", "checkpoint-3"}) fs::remove_all(root_ / "root" / step);
  });
  Checkpointer checkpointer = make();
  save(checkpointer, 4);
  std::vector<float> loaded(3);
  checkpointer.load(4, std::vector<Target>{{shard_, loaded.data()}});
  save(checkpointer, 5);  // the next life of the same object
  names.insert(run_of(4));
  names.insert(run_of(5));
  if (world_.rank != 0) return;
  EXPECT_EQ(names.size(), 1U) << testing::PrintToString(names);
  EXPECT_THAT(*names.begin(), testing::MatchesRegex("[0-9a-f]{16}"));
}

TEST_F(RunName, IsTakenOverFromTheRootWhereNoneIsGiven) {
  live(make("7b"), 1);
  live(make(), 2);
  live(make("7b"), 3);
  const std::string runs = run_of(2) + ", " + noted();
  EXPECT_EQ(runs, world_.rank == 0 ? "7b, 7b" : ", ");
}

TEST_F(RunName, AnotherRunsRootIsRefusedUnlessAllowed) {
  live(make("one"), 1);
  expect_refused(make("two"), 2, {"run 'one'", "'two'", "allow_other_run"});
  // Loading and resuming from another run's root is allowed.
  {
    Checkpointer checkpointer = make("two");
    std::vector<float> loaded(3);
    EXPECT_EQ(checkpointer.load_latest(std::vector<Target>{{shard_, loaded.data()}}).step, 1U);
    EXPECT_EQ(loaded, values_);
    expect_error(ErrorKind::kState, [&] { save(checkpointer, 2); }, {"run 'one'", "'two'"});
  }
  on_rank_0([&] { fs::remove(root_ / "root/.cairn/state.json"); });
  expect_refused(make("two"), 2, {"run 'one'", "'two'"});
  live(make("two", true), 2);
  live(make("two"), 3);
  expect_refused(make("one"), 4, {"run 'two'", "'one'"});
  live(make(), 5);
  const std::string run = run_of(5);
  EXPECT_EQ(run, world_.rank == 0 ? "two" : "");
}

TEST_F(RunName, ACheckpointOfAnotherRunThatWasCopiedIntoTheRootIsNoticed) {
  live(make("one"), 1);
  live(make_in("other", "two"), 2);
  live(make_in("other", "two"), 3);
  on_rank_0([&] { fs::rename(root_ / "other/checkpoint-3", root_ / "root/checkpoint-3"); });  // of epoch 2
  expect_refused(make("one"), 4, {"run 'two'", "'one'"});
  expect_refused(make(), 4, {"root of run 'one'", "checkpoint-3 was saved by run 'two'", "Options::run_id"});
  live(make("one", true), 4);
  const std::string run = run_of(4);
  EXPECT_EQ(run, world_.rank == 0 ? "one" : "");
}

}  // namespace
}  // namespace cairn::test
