#include "life/signals.hpp"

#include <fmt/core.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "cairn/error.hpp"

namespace cairn::life {
namespace {

constexpr int kSignals = 65;  // 1 to 64 on Linux

/// The data of the handler, which may only touch lock-free atomics.
struct Caught {
  std::atomic<std::uint32_t> count{0};
  std::atomic<void (*)(int)> handler{nullptr};                          ///< the program's, of the simple form
  std::atomic<void (*)(int, siginfo_t*, void*)> full_handler{nullptr};  ///< the program's, of the other form
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<void (*)(int)>::is_always_lock_free);

std::array<Caught, kSignals> caught;

struct Registered {
  std::uint32_t users = 0;
  struct sigaction before {};
};
std::mutex mutex;  // guards `registered`
std::array<Registered, kSignals> registered;

void count_signal(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  Caught& here = caught[static_cast<std::size_t>(signal)];
  here.count.fetch_add(1, std::memory_order_relaxed);
  if (const auto full = here.full_handler.load(); full != nullptr) {
    full(signal, info, context);
  } else if (const auto simple = here.handler.load(); simple != nullptr) {
    simple(signal);
  }
  errno = error;
}

void catch_signal(int signal) {
  Registered& entry = registered[static_cast<std::size_t>(signal)];
  if (entry.users++ != 0) return;
  Caught& here = caught[static_cast<std::size_t>(signal)];
  if (::sigaction(signal, nullptr, &entry.before) == 0) {
    const bool is_full = (entry.before.sa_flags & SA_SIGINFO) != 0;
    const bool is_function = entry.before.sa_handler != SIG_DFL && entry.before.sa_handler != SIG_IGN;
    here.full_handler = is_full ? entry.before.sa_sigaction : nullptr;
    here.handler = !is_full && is_function ? entry.before.sa_handler : nullptr;
  }
  struct sigaction action {};
  action.sa_sigaction = count_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;  // reads and writes of a save go on
  ::sigemptyset(&action.sa_mask);
  if (::sigaction(signal, &action, nullptr) == 0) return;
  const int error = errno;
  --entry.users;
  throw Error(ErrorKind::kUsage, fmt::format("signal {} cannot be caught: {}", signal, std::strerror(error)),
              {error, {}});
}

void release_signal(int signal) {
  Registered& entry = registered[static_cast<std::size_t>(signal)];
  if (--entry.users != 0) return;
  struct sigaction now {};
  // The program may have set another function since then, which stays.
  const bool is_ours =
      ::sigaction(signal, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == count_signal;
  if (is_ours) ::sigaction(signal, &entry.before, nullptr);
}

}  // namespace

CountedSignals::CountedSignals(std::span<const int> signals) {
  const std::lock_guard lock(mutex);
  seen_.reserve(signals.size());
  try {
    for (const int signal : signals) {
      if (signal <= 0 || signal >= kSignals) {
        throw Error(ErrorKind::kUsage, fmt::format("{} is not the number of a signal", signal));
      }
      catch_signal(signal);
      seen_.push_back({signal, caught[static_cast<std::size_t>(signal)].count.load()});
    }
  } catch (...) {
    for (const Seen& seen : seen_) release_signal(seen.signal);
    throw;
  }
}

CountedSignals::~CountedSignals() {
  const std::lock_guard lock(mutex);
  for (const Seen& seen : seen_) release_signal(seen.signal);
}

int CountedSignals::take() {
  int last = 0;
  for (Seen& seen : seen_) {
    const std::uint32_t count = caught[static_cast<std::size_t>(seen.signal)].count.load();
    if (count == seen.count) continue;
    seen.count = count;
    last = seen.signal;
  }
  return last;
}

}  // namespace cairn::life
