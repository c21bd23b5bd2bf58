// The log of a root: one line for each call of a Checkpointer, written by rank 0, whatever the call's result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "environment.hpp"
#include "expect_error.hpp"
#include "faults.hpp"
#include "format/run_log.hpp"
#include "moment_state.hpp"
#include "root/run_log.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RunLogOfCalls : public testing::Test {
 protected:
  RunLogOfCalls() { state_.fill(1); }

  static Options options() {
    Options options = options_for_small_state();
    options.lease.wait_seconds = 0;
    options.run_id = "logged";
    return options;
  }
  [[nodiscard]] Checkpointer make(const Options& with = options()) const {
    return {MPI_COMM_WORLD, root_.path(), with};
  }
  /// Collective: all calls in the log, on every rank.
  [[nodiscard]] std::vector<format::LogCall> calls() const {
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<format::LogCall> calls = root::read_run_log(root_.path()).calls;
    MPI_Barrier(MPI_COMM_WORLD);
    return calls;
  }
  /// Collective: the one line that `work`, which may throw, adds to the log.
  format::LogCall line_of(const std::function<void()>& work) const {
    const std::size_t before = calls().size();
    try {
      work();
    } catch (const Error&) {
    }
    const std::vector<format::LogCall> all = calls();
    EXPECT_EQ(all.size(), before + 1);
    return all.empty() ? format::LogCall() : all.back();
  }
  void expect_ranks(const format::LogCall& line) const {
    EXPECT_EQ(line.ranks, static_cast<std::uint64_t>(world_.ranks));
    EXPECT_EQ(line.nodes, 1U);
  }

  const World world_;
  SharedTempDir root_;
  RankState state_{small_state(), Cut::kRows, world_.rank, world_.ranks};
  RankState loaded_{small_state(), Cut::kRows, world_.rank, world_.ranks};
};

TEST_F(RunLogOfCalls, HasTheReportsOfSavesAndLoads) {
  Checkpointer checkpointer = make();
  Report report;
  format::LogCall line = line_of([&] { report = checkpointer.save(10, state_.sources()); });
  EXPECT_EQ(line.what, format::kLogSave);
  EXPECT_EQ(line.outcome, format::kLogGood);
  EXPECT_EQ(line.step, 10U);
  EXPECT_EQ(line.bytes, report.bytes);
  EXPECT_EQ(line.files, report.files);
  EXPECT_EQ(line.engine, report.engine);
  EXPECT_NEAR(line.seconds, report.seconds, 1e-5);
  EXPECT_EQ(line.phases.size(), report.phases.size());
  EXPECT_EQ(line.run_id, "logged");
  EXPECT_FALSE(line.is_async);
  EXPECT_EQ(line.ratio, 0);
  expect_ranks(line);

  line = line_of([&] { report = checkpointer.load(10, loaded_.targets()); });
  EXPECT_EQ(line.what, format::kLogLoad);
  EXPECT_EQ(line.outcome, format::kLogGood);
  EXPECT_EQ(line.step, 10U);
  EXPECT_EQ(line.bytes, report.bytes);
  EXPECT_EQ(line.run_id, "logged");
  expect_ranks(line);
  line = line_of([&] { checkpointer.load_latest(loaded_.targets()); });
  EXPECT_EQ(line.step, 10U);
  EXPECT_TRUE(line.skipped.empty());

  line = line_of([&] { report = checkpointer.save_async(20, state_.sources()).wait(); });
  EXPECT_EQ(line.what, format::kLogSave);
  EXPECT_EQ(line.outcome, format::kLogGood);
  EXPECT_EQ(line.step, 20U);
  EXPECT_TRUE(line.is_async);
  EXPECT_NEAR(line.stall_seconds, report.stall->seconds, 1e-5);
  EXPECT_NEAR(line.stall_seconds + line.background_seconds, report.seconds, 1e-5);
  expect_ranks(line);
  line = line_of([&] { checkpointer.save(30, state_.sources()); });  // after an asynchronous save
  EXPECT_EQ(line.step, 30U);
  EXPECT_FALSE(line.is_async);
  EXPECT_EQ(checkpointer.steps().size(), 3U);
  EXPECT_EQ(checkpointer.latest(), 30U);
}

TEST_F(RunLogOfCalls, HasTheErrorsToo) {
  Checkpointer checkpointer = make();
  checkpointer.save(10, state_.sources());
  format::LogCall line = line_of([&] { checkpointer.save(10, state_.sources()); });
  EXPECT_EQ(line.outcome, format::kLogRefused);
  EXPECT_EQ(line.error_kind, "usage");
  EXPECT_THAT(line.error, HasSubstr("checkpoint-10"));
  expect_ranks(line);
  line = line_of([&] { checkpointer.load(11, loaded_.targets()); });
  EXPECT_EQ(line.what, format::kLogLoad);
  EXPECT_EQ(line.outcome, format::kLogFailed);
  EXPECT_EQ(line.error_kind, "not_found");
  EXPECT_EQ(line.step, 11U);
  {
    const Faults faults("write:path=.safetensors:errno=ENOSPC");
    line = line_of([&] { checkpointer.save(20, state_.sources()); });
    EXPECT_EQ(line.outcome, format::kLogFailed);
    EXPECT_EQ(line.error_kind, "io");
    EXPECT_EQ(line.step, 20U);
    line = line_of([&] { static_cast<void>(checkpointer.save_async(21, state_.sources()).wait()); });
    EXPECT_EQ(line.outcome, format::kLogFailed);
    EXPECT_EQ(line.step, 21U);
  }
  std::vector<Source> twice = state_.sources();  // found before the save could begin
  const std::vector<Source> again = state_.sources();
  twice.insert(twice.end(), again.begin(), again.end());
  line = line_of([&] { static_cast<void>(checkpointer.save_async(22, twice)); });
  EXPECT_EQ(line.outcome, format::kLogRefused);
  EXPECT_EQ(line.step, 22U);
  EXPECT_EQ(line_of([&] { checkpointer.save(22, state_.sources()); }).outcome, format::kLogGood);
}

TEST_F(RunLogOfCalls, NamesTheStepsThatALoadPassedOver) {
  Checkpointer checkpointer = make();
  checkpointer.save(10, state_.sources());
  checkpointer.save(20, state_.sources());
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_.rank == 0) fs::resize_file(root_ / "checkpoint-20" / "cairn.blocks", 10);
  MPI_Barrier(MPI_COMM_WORLD);
  const format::LogCall line = line_of([&] { checkpointer.load_latest(loaded_.targets()); });
  EXPECT_EQ(line.step, 10U);
  EXPECT_THAT(line.skipped, testing::ElementsAre(20));
}

TEST_F(RunLogOfCalls, TellsWhatACodecSpared) {
  Options with = options();
  with.quantisation.codecs = {{"optimizer", "q8"}};
  Checkpointer checkpointer = make(with);
  MomentRank state(Cut::kRows, world_.rank, world_.ranks);
  state.fill(1);
  Report coded;
  const format::LogCall line = line_of([&] { coded = checkpointer.save(10, state.sources()); });
  EXPECT_EQ(line.codecs.at("optimizer"), "q8");
  Checkpointer plain(MPI_COMM_WORLD, root_ / "plain", options());
  const Report whole = plain.save(10, state.sources());
  EXPECT_NEAR(line.ratio, static_cast<double>(whole.bytes) / static_cast<double>(coded.bytes), 1e-3);
  EXPECT_GT(line.ratio, 1.5);
}

TEST_F(RunLogOfCalls, FailsNoCallIfItCannotBeWritten) {
  Checkpointer checkpointer = make();
  checkpointer.save(10, state_.sources());
  std::uint64_t step = 10;
  for (const char* rule : {"open:path=cairn.log:errno=30", "open:path=cairn.log:errno=EACCES",
                           "write:path=cairn.log:errno=ENOSPC", "write:path=cairn.log:errno=EDQUOT"}) {
    SCOPED_TRACE(rule);
    const std::size_t before = calls().size();
    {
      const Faults faults(rule);
      checkpointer.save(++step, state_.sources());
      static_cast<void>(checkpointer.save_async(++step, state_.sources()).wait());
      EXPECT_EQ(checkpointer.load_latest(loaded_.targets()).step, step);
    }
    EXPECT_EQ(loaded_.matching_bytes(1), loaded_.bytes());
    EXPECT_EQ(calls().size(), before);
  }
}

TEST_F(RunLogOfCalls, IsLeftOutByAnOptionThatAllRanksShare) {
  Options off = options();
  off.run_log = false;
  {
    Checkpointer checkpointer = make(off);
    checkpointer.save(10, state_.sources());
    checkpointer.load(10, loaded_.targets());
  }
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_FALSE(fs::exists(root_ / format::kRunLogFile));
  if (world_.ranks == 1) return;
  off.run_log = world_.rank == 0;
  expect_error(ErrorKind::kUsage, [&] { static_cast<void>(make(off)); }, {"run_log"});
}

TEST_F(RunLogOfCalls, BeginsWithTheFirstSaver) {
  Checkpointer checkpointer = make();
  EXPECT_THROW(checkpointer.load_latest(loaded_.targets()), Error);
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_TRUE(fs::is_empty(root_.path()));
  MPI_Barrier(MPI_COMM_WORLD);
  checkpointer.save(1, state_.sources());
  EXPECT_EQ(calls().size(), 1U);
}

}  // namespace
}  // namespace cairn::test
