// What saves that go on behind a program cost it: beside a copy of the same bytes, beside synchronous saves, and in the
// steps that it makes meanwhile.
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
  std::string layout;  ///< for all ranks
  std::uint64_t repeats = 5;
  std::uint64_t warm_up = 1;
  std::string program_cores;  ///< processors of the ranks' own threads, as taskset writes them; empty: as they are
  std::filesystem::path directory;               ///< to save in
  std::function<void(const std::string&)> tell;  ///< called on rank 0 with a line about what was done
};

/// Seconds of the slowest rank. Saves are durable when they end.
struct AsyncSample {
  double memcpy = 0;      ///< each rank copies as many bytes as it gives to a snapshot, all at the same time
  double save = 0;        ///< save(), while the program waits
  double stall = 0;       ///< save_async(), until it returns
  double stall_plan = 0;  ///< ... of that, for the plan: that the state is the one of the last save
  double stall_copy = 0;  ///< ... of that, for the copy
  double behind = 0;      ///< the same save until it is committed, while the program sleeps
  double step = 0;        ///< a step of the program, while no save is under way: mean of as many as of the next
  double busy_step = 0;   ///< ... while one is
  double busy = 0;        ///< save_async() until it is committed, while the program makes these steps
  std::uint64_t steps = 0;
};

struct AsyncRun {
  std::string workload;
  std::string layout;
  std::uint64_t state_bytes = 0;
  std::uint64_t snapshot_bytes = 0;  ///< of all ranks
  std::uint64_t pool_bytes = 0;      ///< of the rank that keeps most
  std::string engine;
  double first_stall = 0;            ///< of the first save_async(), with plan and pool
  double prepare = 0;                ///< of that, for the pool
  std::uint64_t verified_bytes = 0;  ///< loaded from the last save, and compared
  std::vector<AsyncSample> samples;
};

/// Collective. One Checkpointer for the run, as a trainer has, so plans and memory are used again. A step of the program
/// is computation of about a millisecond and four MPI_Allreduce of 8 bytes. What the last save wrote is loaded and
/// compared: Error(kIntegrity) when any byte differs. Throws Error(kUsage) where saves cannot go on behind the program.
AsyncRun measure_async(comm::Communicator& communicator, const Workload& workload, const AsyncRunOptions& options);

}  // namespace cairn::bench
