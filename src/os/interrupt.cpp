#include "os/interrupt.hpp"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/exit_codes.hpp"
#include "os/file.hpp"

namespace cairn::os {
namespace {

/// Signals that end a process by default and come from outside: batch systems send USR1, USR2 or XCPU before a time
/// limit. SIGQUIT keeps its core dump.
constexpr std::array<std::pair<int, const char*>, 6> kEndings = {{{SIGINT, "SIGINT"},
                                                                  {SIGTERM, "SIGTERM"},
                                                                  {SIGHUP, "SIGHUP"},
                                                                  {SIGXCPU, "SIGXCPU"},
                                                                  {SIGUSR1, "SIGUSR1"},
                                                                  {SIGUSR2, "SIGUSR2"}}};
constexpr int kRemovals = 50;
constexpr std::chrono::milliseconds kBetweenRemovals{20};
/// Longer than the second after which mpirun kills the rest of a job that it has asked to end.
constexpr std::chrono::seconds kPatience{3};

struct Ending {
  std::atomic<bool> is_asked_for{false};
  std::recursive_mutex mutex;
  std::vector<std::filesystem::path> paths;
  std::vector<const std::function<void()>*> actions;
  std::atomic<bool> has_begun{false};
  std::atomic<bool> speaks{true};
  std::atomic<int> settled{-1};  ///< exit code of a program that has done its work; negative: not yet
};

/// Never destroyed: the thread that waits for signals lives as long as the process.
Ending& ending() {
  static Ending& only = *new Ending;
  return only;
}

/// Tries several times, since other ranks may still be writing there. Returns the reason for a failure, or "".
std::string try_to_remove(const std::filesystem::path& path) {
  std::string why;
  for (int attempt = 0; attempt < kRemovals; ++attempt) {
    try {
      remove_tree(path);
      return {};
    } catch (const std::exception& error) {
      why = error.what();
      std::this_thread::sleep_for(kBetweenRemovals);
    }
  }
  return why;
}

std::string quoted(const std::filesystem::path& path) { return "'" + shown(path) + "'"; }

/// Removes the registered paths, and returns one line with the result.
std::string remove_all(int signal) {
  std::string removed;
  std::string left;
  for (const std::filesystem::path& path : ending().paths) {
    std::error_code ignored;
    const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
    const std::string why = try_to_remove(path);
    if (!why.empty()) {
      left += fmt::format("; {} is left behind: {}", quoted(path), why);
    } else if (is_there) {
      removed += (removed.empty() ? "; removed the unfinished " : ", ") + quoted(path);
    }
  }
  const auto* const name =
      std::find_if(kEndings.begin(), kEndings.end(), [&](const auto& e) { return e.first == signal; });
  return fmt::format("cairn: interrupted by {}{}{}\n", name->second, removed, left);
}

[[noreturn]] void end(int signal) {
  if (const int code = ending().settled; code >= 0) ::_exit(code);
  ending().has_begun = true;
  const std::lock_guard lock(ending().mutex);
  if (ending().speaks) {
    const std::string line = (::isatty(STDERR_FILENO) == 1 ? "\r\x1b[K" : "") + remove_all(signal);
    // Avoids stdio, whose locks a working thread may hold.
    for (std::size_t done = 0; done < line.size();) {
      const ssize_t written = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) break;
      done += static_cast<std::size_t>(written);
    }
    for (const std::function<void()>* action : ending().actions) (*action)();
  } else {
    std::this_thread::sleep_for(kPatience);
  }
  ::_exit(base::kExitSignal + signal);
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void end_on_signals() {
  ending().is_asked_for = true;
  sigset_t waited;
  ::sigemptyset(&waited);
  for (const auto& [signal, name] : kEndings) {
    if (!is_ignored(signal)) ::sigaddset(&waited, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &waited, nullptr);
  std::thread([waited] {
    int signal = 0;
    while (::sigwait(&waited, &signal) != 0) {
    }
    // A second signal ends the program whatever it is doing.
    ::pthread_sigmask(SIG_UNBLOCK, &waited, nullptr);
    end(signal);
  }).detach();
}

void set_speaks_at_end(bool speaks) { ending().speaks = speaks; }

void settle_ending(int exit_code) { ending().settled = exit_code; }

// Without end_on_signals, these calls take no lock: in a library, a hanging rename must not block other Checkpointers.
void remove_at_end(const std::filesystem::path& path) {
  if (!ending().is_asked_for) return;
  const std::lock_guard lock(ending().mutex);
  ending().paths.push_back(path);
}

void keep_at_end(const std::filesystem::path& path) {
  if (!ending().is_asked_for) return;
  const std::lock_guard lock(ending().mutex);
  std::erase(ending().paths, path);
}

AtEnd::AtEnd(std::function<void()> action) : action_(std::move(action)) {
  if (!ending().is_asked_for) return;
  const std::lock_guard lock(ending().mutex);
  ending().actions.push_back(&action_);
}

AtEnd::~AtEnd() {
  if (!ending().is_asked_for) return;
  const std::lock_guard lock(ending().mutex);
  std::erase(ending().actions, &action_);
}

std::unique_lock<std::recursive_mutex> hold_end() {
  if (!ending().is_asked_for) return {};
  return std::unique_lock(ending().mutex);
}

void wait_when_ending() {
  while (ending().has_begun) std::this_thread::sleep_for(kPatience);
}

}  // namespace cairn::os
