// The public interface on MPI: saves, loads with other partitions, refused options, and equal errors on all ranks.
#include <gtest/gtest.h>
#include <mpi.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "comm/mpi.hpp"
#include "conversion/convert.hpp"
#include "environment.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "os/fault.hpp"
#include "same_text.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

class OnEngine : public testing::TestWithParam<const char*> {};

TEST_P(OnEngine, SavesAndLoadsInEveryCut) {
  const World world;
  const SharedTempDir root;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for_small_state(GetParam()));
  EXPECT_EQ(checkpointer.latest(), std::nullopt);
  std::uint64_t step = 0;
  for (const Cut cut : {Cut::kMixed, Cut::kColumns, Cut::kFlat}) {
    RankState state(small_state(), cut, world.rank, world.ranks);
    state.fill(static_cast<int>(++step));
    const Report saved = checkpointer.save(step, state.sources());
    EXPECT_EQ(saved.engine, GetParam());
    EXPECT_GT(saved.bytes, 500'000U);
    EXPECT_FALSE(saved.phases.empty());
    EXPECT_EQ(checkpointer.latest(), step);
    for (const Cut other : {Cut::kRows, Cut::kMixed, Cut::kOneRank}) {
      RankState loaded(small_state(), other, world.rank, world.ranks);
      const Report report = checkpointer.load(step, loaded.targets());
      EXPECT_EQ(loaded.matching_bytes(static_cast<int>(step)), loaded.bytes());
      EXPECT_GE(report.bytes, saved.bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, OnEngine, testing::Values("mpiio", "posix"));

TEST(Checkpointer, EveryReportTellsTheHintsInForce) {
  const World world;
  const SharedTempDir root;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for_small_state("mpiio"));
  RankState state(small_state(), Cut::kRows, world.rank, world.ranks);
  state.fill(1);
  const Report saved = checkpointer.save(1, state.sources());
  const Report loaded = checkpointer.load(1, state.targets());
  conversion::ConvertOptions options;
  options.write = options_for_small_state("mpiio");
  const auto communicator = comm::duplicate_mpi(MPI_COMM_WORLD);
  const auto converted = conversion::convert(*communicator, saved.directory, root.path() / "converted", options);
  for (const Report& report : {saved, loaded, converted.report}) {
    ASSERT_TRUE(report.engine_hints.contains("romio_cb_write"));
    EXPECT_EQ(report.engine_hints.at("romio_cb_write"), "disable");
  }
}

/// The message of the Error that `call` throws, or "".
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Checkpointer, WaitsEndWithoutBeingAsked) {
  EXPECT_EQ(Options{}.waiting.limit_s, 1800);
  EXPECT_EQ(Options{}.waiting.then, OnSilence::kError);
}

/// The constructor refuses options with which no save can work, so that the first save does not fail hours later.
TEST(Checkpointer, OptionsThatNoSaveCanGoByAreRefusedWhenItIsMade) {
  struct Case {
    const char* says;
    std::function<void(Options&)> set;
  };
  const std::vector<Case> cases = {
      {"no engine 'io_uring'", [](Options& options) { options.engine.name = "io_uring"; }},
      {"Options::files.block_bytes is 0", [](Options& options) { options.files.block_bytes = 0; }},
      {"Options::files.align_bytes is 100", [](Options& options) { options.files.align_bytes = 100; }},
      {"the key 'cairn.own'", [](Options& options) { options.files.metadata["cairn.own"] = "x"; }},
      {"no save writes files in the form 'keras'", [](Options& options) { options.files.form = "keras"; }},
      {"mode", [](Options& options) { options.files.mode = 0111; }},
      {"no group 'nobody-has-this'", [](Options& options) { options.files.group = "nobody-has-this"; }},
      {"no codec is called 'q9'", [](Options& options) { options.quantisation.codecs["optimizer"] = "q9"; }},
      {"max_update_error is nan", [](Options& options) { options.quantisation.max_update_error = std::nan(""); }},
      {"max_update_error is -1", [](Options& options) { options.quantisation.max_update_error = -1; }},
      {"together would save no weights",
       [](Options& options) {
         options.quantisation.remove_master_weight = options.quantisation.skip_save_model_weight = true;
       }},
      {"PaddleFormers reads no moments in q8",
       [](Options& options) {
         options.files.form = "paddleformers";
         options.quantisation.codecs["optimizer"] = "q8";
       }},
      {"a lease time of 0 s", [](Options& options) { options.lease.seconds = 0; }},
      {"cannot wait -1 s for another saver; give Options::lease.wait_seconds from 0 to ",
       [](Options& options) { options.lease.wait_seconds = -1; }},
      {"'0-x'", [](Options& options) { options.async.cores = "0-x"; }},
      {"a limit of -1 s", [](Options& options) { options.waiting.limit_s = -1; }},
      {"Options::run_id has 1025 bytes", [](Options& options) { options.run_id = std::string(1025, 'r'); }},
      {"is not UTF-8", [](Options& options) { options.run_id = "\xff"; }},
      {"Options::engine.hints: key '\\xff' is not UTF-8", [](Options& options) { options.engine.hints["\xff"] = "a"; }},
      {"the value of 'a', '\\xff' is not UTF-8", [](Options& options) { options.engine.hints["a"] = "\xff"; }},
  };
  const SharedTempDir folder;
  for (const Case& c : cases) {
    Options options;
    c.set(options);
    expect_error(ErrorKind::kUsage, [&] { Checkpointer(MPI_COMM_WORLD, folder / "root", options); }, {c.says});
  }
  Options options;
  options.limits.memory_budget_bytes = 1 << 20;  // may be enough for loads
  EXPECT_NO_THROW(Checkpointer(MPI_COMM_WORLD, folder / "root", options));
}

TEST(Checkpointer, ErrorsAreTheSameOnAllRanks) {
  const World world;
  const SharedTempDir root;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for_small_state("mpiio"));
  RankState state(small_state(), Cut::kRows, world.rank, world.ranks);
  state.fill(1);
  checkpointer.save(1, state.sources());
  const int last = world.ranks - 1;

  auto sources = state.sources();
  if (world.rank == last) sources[0].dtype = DType::kU16;
  const std::string contradiction = message_of([&] { checkpointer.save(2, sources); });
  if (world.ranks > 1) {
    EXPECT_NE(contradiction.find("model.embed_tokens.weight"), std::string::npos) << contradiction;
  }
  expect_same_everywhere(contradiction);

  auto targets = state.targets();
  if (world.rank == last) targets[1].name = "no.such.tensor";
  const std::string missing = message_of([&] { checkpointer.load(1, targets); });
  EXPECT_NE(missing.find("no.such.tensor"), std::string::npos) << missing;
  expect_same_everywhere(missing);

  const std::string no_step = message_of([&] { checkpointer.load(77, state.targets()); });
  EXPECT_NE(no_step.find("checkpoint-77"), std::string::npos) << no_step;
  expect_same_everywhere(no_step);
}

TEST(Checkpointer, FaultsOnAnyRankLeaveTheLastCheckpoint) {
  const World world;
  const SharedTempDir root;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for_small_state("mpiio"));
  RankState state(small_state(), Cut::kRows, world.rank, world.ranks);
  state.fill(1);
  checkpointer.save(1, state.sources());
  const std::string last = std::to_string(world.ranks - 1);
  std::uint64_t step = 1;
  for (const std::string& rule :
       {"write:path=.safetensors:rank=" + last, std::string("write:path=.safetensors:rank=0:errno=ENOSPC"),
        "fsync:path=.safetensors:rank=" + last, "commit.manifest:rank=" + last, std::string("commit.rename:rank=0")}) {
    os::set_faults(rule);
    const std::string message = message_of([&] { checkpointer.save(++step, state.sources()); });
    os::set_faults("");
    EXPECT_NE(message, "") << rule;
    expect_same_everywhere(message);
    EXPECT_EQ(checkpointer.latest(), 1U) << rule;
  }
  RankState loaded(small_state(), Cut::kFlat, world.rank, world.ranks);
  checkpointer.load(1, loaded.targets());
  EXPECT_EQ(loaded.matching_bytes(1), loaded.bytes());
  checkpointer.save(++step, state.sources());
  EXPECT_EQ(checkpointer.latest(), step);
}

/// Another saver, a thread of rank 0, exchanges the directories after the load has opened one
/// and before the load reads it.
void load_while_it_is_replaced(bool by_step) {
  const World world;
  const SharedTempDir root;
  RankState state(small_state(), Cut::kRows, world.rank, world.ranks);
  for (const int version : {1, 2}) {
    state.fill(version);
    Checkpointer(MPI_COMM_WORLD, root / std::to_string(version), options_for_small_state("posix"))
        .save(1, state.sources());
  }
  const std::filesystem::path go = root / "go";
  std::thread other;
  if (world.rank == 0) {
    other = std::thread([&] {
      wait_until_paused(go);
      std::filesystem::rename(root / "1" / "checkpoint-1", root / "old");
      std::filesystem::rename(root / "2" / "checkpoint-1", root / "1" / "checkpoint-1");
      std::filesystem::remove_all(root / "old");
      std::ofstream(go).close();
    });
  }
  Checkpointer checkpointer(MPI_COMM_WORLD, root / "1", options_for_small_state("posix"));
  RankState loaded(small_state(), Cut::kColumns, world.rank, world.ranks);
  {
    const Faults faults("memory.load:rank=0:times=1:pause=" + go.string());
    const std::string message = message_of([&] {
      const Report report =
          by_step ? checkpointer.load(1, loaded.targets()) : checkpointer.load_latest(loaded.targets());
      EXPECT_TRUE(report.skipped.empty());
    });
    EXPECT_EQ(message, "");
  }
  if (other.joinable()) other.join();
  EXPECT_EQ(loaded.matching_bytes(2), loaded.bytes());
}

TEST(Checkpointer, ALoadStartsOverWhenItsCheckpointIsReplacedMeanwhile) {
  load_while_it_is_replaced(true);
  load_while_it_is_replaced(false);
}

}  // namespace
}  // namespace cairn::test
