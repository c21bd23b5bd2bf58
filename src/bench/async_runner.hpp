// The cost of asynchronous saves to a program, compared with a copy of the same bytes and with synchronous saves, and
// their effect on the program's steps during a save.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bench/workload.hpp"
#include "cairn/checkpoint.hpp"
#include "comm/communicator.hpp"

namespace cairn::bench {

struct AsyncRunOptions {
  Options checkpointer;
  std::string layout;  ///< layout over all ranks
  std::uint64_t repeats = 5;
  std::uint64_t warm_up = 1;
  std::string program_cores;        ///< processors for the ranks' main threads, as for taskset; empty: unchanged
  std::filesystem::path directory;  ///< directory for the checkpoints
  std::function<void(const std::string&)> tell;  ///< called on rank 0 with a line of progress
};

/// Seconds of the slowest rank. The end of a save is the time at which it is durable.
struct AsyncSample {
  double memcpy = 0;      ///< a copy of about the bytes of a snapshot, on all ranks at the same time
  double save = 0;        ///< save(), while the program waits
  double stall = 0;       ///< save_async(), until it returns
  double stall_plan = 0;  ///< part of the stall in which the state is compared with that of the last save
  double stall_copy = 0;  ///< part of the stall in which the state is copied
  double behind = 0;      ///< the save of `stall` from the call to its commit, while the program sleeps
  double step = 0;        ///< a step of the program without a running save: mean of `steps` steps
  double busy_step = 0;   ///< a step of the program during a save: mean of `steps` steps
  double busy = 0;        ///< a save from the call to its commit, while the program makes `steps` steps
  std::uint64_t steps = 0;
};

struct AsyncRun {
  std::string workload;
  std::string layout;
  std::uint64_t state_bytes = 0;
  std::uint64_t snapshot_bytes = 0;  ///< bytes of all ranks
  std::uint64_t pool_bytes = 0;      ///< largest pool of a rank
  std::string engine;
  double first_stall = 0;            ///< stall of the first save_async(), with plan and pool
  double prepare = 0;                ///< part of first_stall, for the pool
  std::uint64_t verified_bytes = 0;  ///< bytes loaded from the last save, and compared
  std::vector<AsyncSample> samples;
};

/// Collective. One Checkpointer for the run, as in a trainer, so plans and memory are reused. A step of the program is
/// about a millisecond of computation and four MPI_Allreduce of 4 bytes. The last save is loaded and compared:
/// Error(kIntegrity) if any byte differs. Throws Error(kUsage) if saves cannot be asynchronous.
AsyncRun measure_async(comm::Communicator& communicator, const Workload& workload, const AsyncRunOptions& options);

}  // namespace cairn::bench
