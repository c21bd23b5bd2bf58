// Fault hooks: make the n-th operation of a kind fail, on a chosen rank, for tests of everything that can go wrong.
//
// Environment CAIRN_FAULT, rules separated by ';', each `op[:key=value]...`:
//   op      open write read stat fsync close rename exchange mkdir unlink truncate flock link chown chmod (file
//           operations; exchange swaps two names, truncate is reserve() too), or the name of a step of the commit
//           ("commit.manifest" ...; src/root/commit.hpp lists them), "windows.make" (io/window_pool.hpp),
//           "windows.share" and "windows.reserve" (comm/shared_memory.cpp), "os.io_uring" (io_queue.hpp), "root.see"
//           (root/views.hpp), "memory.*" (an allocation that fails: grep for fault_memory), "thread.watchdog" and
//           "thread.async" (a thread that cannot be started), "thread.affinity" (one that may not have its processors),
//           "call.phase" (a phase of a call begins; the path is its name), "mpiio.open" (before MPI_File_open: to stop
//           there only), or one of the benchmark ("bench.saved", "bench.load", "bench.raw": one bit is turned in what
//           was saved, loaded, read raw)
//   rank=R  only on this rank (default: every rank)          after=N  let N such operations pass first (default 0)
//   path=S  only when the path contains S                    errno=E  EIO (default), ENOSPC, EDQUOT, ENOENT,
//                                                                     EACCES, EINTR, EINVAL, ENOLCK, ENOTSUP, EMFILE,
//                                                                     ESTALE, or a number, such as 524 of file systems
//                                                                     that hand out the kernel's own
//   short=B write or read only B bytes, once, and succeed    kill     raise SIGKILL instead of failing
//   times=N fail N times, then succeed (default: always)     stop=1   raise SIGSTOP, then go on without failing
//   done    with errno: do the operation, then fail, as a request that a network sent twice
//   lie     write half of the bytes and report all, as some storage does; until times=N, or for good
//   pause=F create F.reached, wait until the file F exists, then go on without failing
// times is 1 unless given for short, and for EINTR, which is tried again. A rename has the path of its target. Every
// rule counts the operations that match it, on all threads together; the first rule that applies wins. Nothing happens,
// at the cost of one relaxed atomic load, when no rule is set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace cairn::os {

/// Which rank this process (or, with simulated ranks, this thread) is, for rank=R. Threads that never said so take what
/// was said last in the process; 0 before.
void set_fault_rank(int rank);
int fault_rank();

/// Replaces all rules; "" removes them. Throws Error(kUsage) for a rule that it cannot read. Read once from CAIRN_FAULT
/// at first use otherwise.
void set_faults(std::string_view rules);

/// How often a rule has applied since they were set, on whatever thread.
std::uint64_t fault_hits();

struct Fault {
  int error = 0;                             ///< errno to fail with; 0 when short_bytes or lies is set
  std::optional<std::uint64_t> short_bytes;  ///< transfer only so many bytes
  bool lies = false;                         ///< write only half_of() and report all
  bool is_done = false;                      ///< do it before failing
};

/// What a write that lies leaves on storage, of so many bytes.
constexpr std::uint64_t half_of(std::uint64_t bytes) { return bytes / 2; }

/// Asks whether the operation must fail now; nothing means go on.
std::optional<Fault> check_fault(std::string_view operation, const std::filesystem::path& path);

/// For allocations at named places ("memory.collective" ...): throws std::bad_alloc when a rule says so.
void fault_memory(std::string_view place);

/// For phases of a call, which begin without fail: step "call.phase", whose path is the name. Only kill, stop and pause
/// do anything.
void fault_phase(std::string_view name);

/// For named steps: throws Error(kIo) when a rule says so.
void fault_point(std::string_view step, const std::filesystem::path& path);

}  // namespace cairn::os
