// Fault hooks make the n-th operation of a kind fail, on a chosen rank. For tests.
//
// Environment CAIRN_FAULT: rules separated by ';', each `op[:key=value]...`. An op is
//   - a file operation: open write read stat fsync close rename exchange mkdir unlink truncate flock link clone chown
//     chmod (exchange swaps two names, truncate covers reserve() too, clone makes a file share another's storage)
//   - a step of a commit, lease, takeover or staging file: "commit.manifest" ... (root/commit.hpp), "lease.take" ...
//   - "windows.make" (io/window_pool.hpp), "windows.share", "windows.reserve" (comm/shared_memory.cpp)
//   - "os.io_uring" (io_queue.hpp), "os.direct" (direct.hpp), "root.see" (root/views.hpp)
//   - "memory.*": an allocation that fails (grep for fault_memory)
//   - "thread.watchdog", "thread.async": a thread that cannot be started
//   - "thread.affinity": a thread that may not use its processors
//   - "call.phase": a phase of a call begins; the path is its name
//   - "mpiio.open": before MPI_File_open; only kill, stop and pause work
//   - "bench.saved", "bench.load", "bench.raw": the benchmark flips one bit of the data saved, loaded or read raw
//
// Keys:
//   rank=R   only on rank R (default: every rank)
//   path=S   only when the path contains S
//   after=N  let N matching operations pass first (default 0)
//   times=N  fail N times, then succeed (default: fail always; once for short and EINTR, which are retried)
//   errno=E  EIO (default), ENOSPC, EDQUOT, ENOENT, EACCES, EINTR, EINVAL, ENOLCK, ENOTSUP, EMFILE, ESTALE, or a
//            number, such as 524, an internal code of the kernel that some file systems return
//   short=B  transfer only B bytes and succeed
//   done     with errno: do the operation, then fail, as if a network had sent the request twice
//   lie      write half of the bytes and report all of them as written, as some storage does
//   kill     raise SIGKILL instead of failing
//   stop     raise SIGSTOP, then go on without failing
//   pause=F  create F.reached, wait until the file F exists, then go on without failing
//
// The path of a rename, link or exchange is the target. Every rule counts the operations that match it, on all threads
// together; the first rule that applies wins. Without rules a hook costs one relaxed atomic load.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace cairn::os {

/// The rank of this process (of this thread, with simulated ranks), for rank=R. Threads without a rank use the last
/// rank set in the process, or 0.
void set_fault_rank(int rank);
int fault_rank();

/// Replaces all rules; "" removes them. Throws Error(kUsage) for an invalid rule. Without a call the rules
/// are read from CAIRN_FAULT when the first hook is reached.
void set_faults(std::string_view rules);

/// The number of times that rules have applied since they were set, on all threads.
std::uint64_t fault_hits();

struct Fault {
  int error = 0;                             ///< errno to fail with; 0 when short_bytes or lies is set
  std::optional<std::uint64_t> short_bytes;  ///< transfer only this many bytes
  bool lies = false;                         ///< write only half_of() the bytes, and report all as written
  bool is_done = false;                      ///< do the operation before failing
};

/// The number of bytes that reach storage if a write of `bytes` lies.
constexpr std::uint64_t half_of(std::uint64_t bytes) { return bytes / 2; }

/// The fault that is due for the operation, or nothing. Carries out kill, stop and pause before it returns.
std::optional<Fault> check_fault(std::string_view operation, const std::filesystem::path& path);

/// For allocations at named places ("memory.collective" ...): throws std::bad_alloc when a rule applies.
void fault_memory(std::string_view place);

/// For phases of a call: step "call.phase", with the phase's name as path. A phase cannot fail at its beginning, so
/// only kill, stop and pause work.
void fault_phase(std::string_view name);

/// For named steps: throws Error(kIo) when a rule with an errno other than EINTR applies.
void fault_point(std::string_view step, const std::filesystem::path& path);

}  // namespace cairn::os
