// Each system call of a save fails once on each rank, in synchronous and asynchronous saves.
// The result is the same on all ranks: no incomplete checkpoint is visible, the previous one stays intact, and the next
// save works and removes the leftovers. Tests a random sample of the calls, or with CAIRN_EVERY_CALL every call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "faults.hpp"
#include "os/fault.hpp"
#include "random.hpp"
#include "same_text.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;

enum class How { kSave, kSaveAsync };

struct Case {
  How how = How::kSave;
  const char* engine = "posix";
  ReadBack read_back = ReadBack::kOff;
  bool has_long_runs = false;  ///< asynchronous saves write these from the snapshot
};

/// Calls and their faults, which the calls report. Lies are tested below: only saves with read-back notice them.
const std::vector<std::string> kFaults = {
    "open:errno=EIO",     "open:errno=EMFILE", "write:errno=EIO",       "write:errno=ENOSPC", "write:short=7",
    "write:errno=EINTR",  "fsync:errno=EIO",   "close:errno=EIO",       "rename:errno=EIO",   "exchange:errno=EIO",
    "mkdir:errno=ENOSPC", "unlink:errno=EIO",  "truncate:errno=ENOSPC", "flock:errno=EIO",    "link:errno=EIO"};

/// The seed for the values of a step's state.
int version_of(std::uint64_t step) { return static_cast<int>(step % 100); }

class EveryCall : public testing::TestWithParam<Case> {
 protected:
  Options options() const {
    Options options = GetParam().has_long_runs ? options_for_long_runs(GetParam().engine)
                                               : options_for_small_state(GetParam().engine);
    options.overwrite = true;
    options.read_back = GetParam().read_back;
    options.lease.wait_seconds = 0;
    return options;
  }
  /// Collective: the message of the error, the same on all ranks, or "".
  std::string save(Checkpointer& checkpointer, std::uint64_t step) {
    std::string text;
    try {
      if (GetParam().how == How::kSave) {
        checkpointer.save(step, state_.sources());
      } else {
        checkpointer.save_async(step, state_.sources()).wait();
      }
    } catch (const Error& error) {
      text = error.what();
      EXPECT_NE(text, "");
    }
    expect_same_everywhere(text);
    return text;
  }
  /// Collective: whether `step` loads as `version`.
  bool holds(Checkpointer& checkpointer, std::uint64_t step, int version) {
    loaded_.clear();
    checkpointer.load(step, loaded_.targets());
    return loaded_.matching_bytes(version) == loaded_.bytes();
  }
  [[nodiscard]] bool is_clean() const {
    for (const auto& entry : fs::directory_iterator(root_.path())) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".partial") || name.ends_with(".replaced") || name.ends_with(".tmp")) return false;
    }
    return true;
  }
  /// Collective. One save in which a call fails on `rank`, after `after` good ones; false if there is no such call.
  bool fail(Checkpointer& checkpointer, const std::string& fault, int rank, std::uint64_t after);

  const World world_;
  SharedTempDir root_;
  const std::vector<StateTensor> tensors_ = GetParam().has_long_runs ? state_of_long_runs(world_.ranks) : small_state();
  RankState state_{tensors_, GetParam().has_long_runs ? Cut::kFlat : Cut::kMixed, world_.rank, world_.ranks};
  RankState loaded_{tensors_, Cut::kRows, world_.rank, world_.ranks};
  std::uint64_t step_ = 1;
  std::uint64_t failed_ = 0;
  std::uint64_t passed_ = 0;
};

bool EveryCall::fail(Checkpointer& checkpointer, const std::string& fault, int rank, std::uint64_t after) {
  const std::string rule = fault + ":times=1:rank=" + std::to_string(rank) + ":after=" + std::to_string(after);
  SCOPED_TRACE(rule);
  const std::uint64_t before = step_;
  state_.fill(version_of(before + 1));
  std::string text;
  std::uint64_t hits = 0;
  {
    const Faults faults(rule);
    text = save(checkpointer, before + 1);
    hits = os::fault_hits();
    MPI_Allreduce(MPI_IN_PLACE, &hits, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
  }
  if (hits == 0) {
    EXPECT_EQ(text, "");
  }
  const auto latest = checkpointer.latest();
  if (text.empty()) {
    EXPECT_EQ(latest, before + 1);
  } else {
    // A call that fails after the rename leaves the new checkpoint whole, and its message says so.
    EXPECT_TRUE(latest == before || latest == before + 1) << text;
    EXPECT_TRUE(holds(checkpointer, before, version_of(before))) << text;
    ++failed_;
  }
  passed_ += text.empty() && hits != 0 ? 1 : 0;
  if (!text.empty()) {
    EXPECT_EQ(save(checkpointer, before + 1), "") << "after " << text;
  }
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_TRUE(is_clean()) << text;
  EXPECT_TRUE(holds(checkpointer, before + 1, version_of(before + 1))) << text;
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_.rank == 0) fs::remove_all(root_.path() / ("checkpoint-" + std::to_string(before)));
  MPI_Barrier(MPI_COMM_WORLD);
  step_ = before + 1;
  return hits != 0;
}

TEST_P(EveryCall, FailsOnAllRanksAlikeAndDoesNoHarm) {
  const bool all = std::getenv("CAIRN_EVERY_CALL") != nullptr;
  std::mt19937_64 draw = make_random();  // the same on all ranks
  Checkpointer checkpointer(MPI_COMM_WORLD, root_.path(), options());
  state_.fill(1);
  ASSERT_EQ(save(checkpointer, step_), "");
  std::vector<std::string> faults = kFaults;
  std::shuffle(faults.begin(), faults.end(), draw);
  int kinds = 0;  // number of kinds of call that a save makes
  for (const std::string& fault : faults) {
    if (!all && kinds == 2) break;
    const std::uint64_t before = failed_ + passed_;
    for (int rank = 0; rank < world_.ranks; ++rank) {
      std::uint64_t after = all ? 0 : draw() % 4;
      while (fail(checkpointer, fault, rank, after) && !HasFailure()) after += all ? 1 : 1 + draw() % 30;
      if (HasFailure()) return;
    }
    kinds += failed_ + passed_ != before ? 1 : 0;
  }
  if (world_.rank == 0) {
    std::cout << "[cairn] did " << failed_ << " saves that failed with a call\n[cairn] did " << passed_
              << " saves that did not mind that a call failed" << std::endl;
  }
  EXPECT_GT(failed_ + passed_, 0U);
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.how == How::kSave ? "Sync" : "Async") + "_" + info.param.engine +
         (info.param.read_back == ReadBack::kAll ? "_read_back" : "") + (info.param.has_long_runs ? "_long_runs" : "");
}

INSTANTIATE_TEST_SUITE_P(Saves, EveryCall,
                         testing::Values(Case{How::kSave, "posix"}, Case{How::kSaveAsync, "posix"},
                                         Case{How::kSave, "direct"}, Case{How::kSaveAsync, "direct"},
                                         Case{How::kSaveAsync, "posix", ReadBack::kAll},
                                         Case{How::kSaveAsync, "direct", ReadBack::kOff, true}),
                         name_of);

/// Storage that reports a write as done and loses it.
class Lies : public EveryCall {};

TEST_P(Lies, AreRefusedWhenReadBackAndNamedByTheLoadWhenNot) {
  Checkpointer checkpointer(MPI_COMM_WORLD, root_.path(), options());
  state_.fill(1);
  ASSERT_EQ(save(checkpointer, 1), "");
  for (int rank = 0; rank < world_.ranks; ++rank) {
    for (const std::uint64_t after : {0, 3}) {
      const std::uint64_t step = ++step_;
      state_.fill(static_cast<int>(step));
      std::string text;
      std::uint64_t hits = 0;
      {
        const Faults faults("write:path=.safetensors:lie:times=1:rank=" + std::to_string(rank) +
                            ":after=" + std::to_string(after));
        text = save(checkpointer, step);
        hits = os::fault_hits();
        MPI_Allreduce(MPI_IN_PLACE, &hits, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
      }
      if (hits == 0) continue;
      if (GetParam().read_back == ReadBack::kAll) {
        EXPECT_THAT(text, testing::HasSubstr("checksum"));
        EXPECT_NE(checkpointer.latest(), step);
        EXPECT_EQ(save(checkpointer, step), "");
        EXPECT_TRUE(holds(checkpointer, step, static_cast<int>(step)));
      } else {
        EXPECT_EQ(text, "");
        EXPECT_THROW(holds(checkpointer, step, static_cast<int>(step)), Error);
        const Report report = checkpointer.load_latest(loaded_.targets());
        EXPECT_LT(report.step, step);
        EXPECT_FALSE(report.skipped.empty());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Saves, Lies,
                         testing::Values(Case{How::kSave, "posix"}, Case{How::kSaveAsync, "posix"},
                                         Case{How::kSaveAsync, "posix", ReadBack::kAll},
                                         Case{How::kSaveAsync, "direct", ReadBack::kAll, true}),
                         name_of);

}  // namespace
}  // namespace cairn::test
