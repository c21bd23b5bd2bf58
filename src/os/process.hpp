// Who this process is, so that another can tell later whether it still lives.
#pragma once

#include <sched.h>
#include <signal.h>

#include <cstdint>
#include <string>
#include <thread>
#include <utility>

namespace cairn::os {

/// A process, named so that neither a reused number nor a reboot nor another container can be taken for it.
struct ProcessName {
  std::string host;           ///< host_name()
  std::string boot_id;        ///< of the kernel that runs now; empty where it is not told
  std::string pid_namespace;  ///< in which `pid` is a number; empty where it is not told
  std::uint64_t pid = 0;
  std::uint64_t start_time = 0;  ///< clock ticks after the boot; 0 where it is not told

  bool operator==(const ProcessName&) const = default;
};

/// The machine as it calls itself, for people; empty where it does not.
std::string host_name();

/// What tells whether two processes of a machine see the same files under the same paths; empty where it is not told.
std::string mount_namespace();

ProcessName this_process();

/// What can be said of a process by its number and start time, in this process's own namespace.
enum class Life { kAlive, kDead, kUnknown };
Life life_of(std::uint64_t pid, std::uint64_t start_time);
/// The process that started it, in this process's own namespace; 0: not known.
std::uint64_t parent_of(std::uint64_t pid);

/// No signal reaches this thread, nor those that it starts, while the object lives: signals of a program are for its
/// own threads. Those that a fault of the thread itself raises do, so that handlers of crashes see them.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

/// A thread that takes none of the program's signals; all threads of the library are started by this. Throws
/// std::system_error as std::thread does.
template <class Work>
std::thread start_thread(Work work) {
  const BlockedSignals blocked;  // which a new thread inherits
  return std::thread(std::move(work));
}

/// Processors as taskset writes them: "0-3,8". Throws Error(kUsage) for what is no such list, or names none.
cpu_set_t cores_of(const std::string& list);

/// 16 hexadecimal digits that nobody else draws.
std::string random_nonce();

}  // namespace cairn::os
