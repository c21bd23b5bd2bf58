#include "os/process.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <random>
#include <sstream>
#include <system_error>

#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::os {
namespace {

/// Uses a stream, not os::read_text(), because files in /proc have size 0.
std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

struct ProcessStatus {
  char state = '?';
  std::uint64_t parent = 0;
  std::uint64_t start_time = 0;
};

/// Fields 3, 4 and 22 of /proc/<pid>/stat (proc(5)). Field 2, a name in parentheses, can contain any characters.
std::optional<ProcessStatus> status_of(std::uint64_t pid) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  ProcessStatus status;
  fields >> status.state >> status.parent;
  std::string skipped;
  constexpr int kFirst = 5;
  constexpr int kStartTime = 22;
  for (int field = kFirst; field < kStartTime; ++field) fields >> skipped;
  fields >> status.start_time;
  if (!fields) return std::nullopt;
  return status;
}

std::string own_namespace(const char* kind) {
  std::error_code failed;
  const auto target = std::filesystem::read_symlink(fmt::format("/proc/self/ns/{}", kind), failed);
  return failed ? std::string() : target.string();
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string mount_namespace() { return own_namespace("mnt"); }

ProcessName this_process() {
  ProcessName name;
  name.host = host_name();
  name.boot_id = first_line("/proc/sys/kernel/random/boot_id");
  name.pid_namespace = own_namespace("pid");
  name.pid = static_cast<std::uint64_t>(::getpid());
  const auto status = status_of(name.pid);
  name.start_time = status ? status->start_time : 0;
  return name;
}

std::uint64_t parent_of(std::uint64_t pid) {
  const auto status = status_of(pid);
  return status ? status->parent : 0;
}

Life life_of(std::uint64_t pid, std::uint64_t start_time) {
  if (pid == 0 || pid > static_cast<std::uint64_t>(std::numeric_limits<pid_t>::max())) return Life::kUnknown;
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return Life::kDead;
  const auto status = status_of(pid);
  if (!status || start_time == 0) return Life::kUnknown;  // hidden from this user, just gone, or no start time given
  if (status->start_time != start_time) return Life::kDead;
  // A process that has ended, but for which its parent has not waited yet, counts as dead: its files are closed.
  return status->state == 'Z' || status->state == 'X' ? Life::kDead : Life::kAlive;
}

BlockedSignals::BlockedSignals() {
  sigset_t all;
  ::sigfillset(&all);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) ::sigdelset(&all, own);
  ::pthread_sigmask(SIG_BLOCK, &all, &before_);
}

BlockedSignals::~BlockedSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

cpu_set_t cores_of(const std::string& list) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const auto refuse = [&] {
    throw Error(ErrorKind::kUsage,
                fmt::format("'{}' is no list of processors; write numbers and ranges, such as 0-3,8 (below {})",
                            base::printable(list), CPU_SETSIZE));
  };
  const char* at = list.data();
  const char* const end = at + list.size();
  const auto read_number = [&] {
    unsigned number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number >= CPU_SETSIZE) refuse();
    at = rest;
    return number;
  };
  for (;;) {
    const unsigned first = read_number();
    unsigned last = first;
    if (at != end && *at == '-') {
      ++at;
      last = read_number();
      if (last < first) refuse();
    }
    for (unsigned core = first; core <= last; ++core) CPU_SET(core, &cores);
    if (at == end) return cores;
    if (*at++ != ',') refuse();
  }
}

std::string random_nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

}  // namespace cairn::os
