// Names of processes, which later show whether a process is still alive; threads without signals; lists of processors.
#pragma once

#include <sched.h>
#include <signal.h>

#include <cstdint>
#include <string>
#include <thread>
#include <utility>

namespace cairn::os {

/// A process, named unambiguously across reused process IDs, reboots and containers.
struct ProcessName {
  std::string host;           ///< host_name()
  std::string boot_id;        ///< the kernel's ID of this boot; empty: unknown
  std::string pid_namespace;  ///< namespace of `pid`; empty: unknown
  std::uint64_t pid = 0;
  std::uint64_t start_time = 0;  ///< in clock ticks since boot; 0: unknown

  bool operator==(const ProcessName&) const = default;
};

/// The machine's own name; empty: unknown.
std::string host_name();

/// Two processes on one machine see the same files under the same paths if this value is equal; empty: unknown.
std::string mount_namespace();

ProcessName this_process();

/// State of a process that is given by number and start time, in this process's own namespace.
enum class Life { kAlive, kDead, kUnknown };
Life life_of(std::uint64_t pid, std::uint64_t start_time);
/// The parent of process `pid`, in this process's own namespace; 0: unknown.
std::uint64_t parent_of(std::uint64_t pid);

/// While this object lives, its thread, and threads that this thread starts, receive no signals: signals are for the
/// program's own threads. Signals raised by a fault of the thread itself still arrive, so that crash handlers see them.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

/// Starts a thread that does not receive the program's signals; the library starts all its threads this way. Throws
/// std::system_error as std::thread does.
template <class Work>
std::thread start_thread(Work work) {
  const BlockedSignals blocked;  // inherited by the new thread
  return std::thread(std::move(work));
}

/// Processors as taskset writes them: "0-3,8". Throws Error(kUsage) for any other string, and for an empty list.
cpu_set_t cores_of(const std::string& list);

/// 16 random hexadecimal digits, unique in practice.
std::string random_nonce();

}  // namespace cairn::os
