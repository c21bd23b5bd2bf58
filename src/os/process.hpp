// Who this process is, so that another can tell later whether it still lives.
#pragma once

#include <sched.h>
#include <signal.h>

#include <cstdint>
#include <string>

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

ProcessName this_process();

/// What can be said of a process by its number and start time, in this process's own namespace.
enum class Life { kAlive, kDead, kUnknown };
Life life_of(std::uint64_t pid, std::uint64_t start_time);

/// No signal reaches this thread, nor those that it starts, while the object lives: signals of a program are for its
/// own threads.
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_{};
};

/// Processors as taskset writes them: "0-3,8". Throws Error(kUsage) for what is no such list, or names none.
cpu_set_t cores_of(const std::string& list);

/// 16 hexadecimal digits that nobody else draws.
std::string random_nonce();

}  // namespace cairn::os
