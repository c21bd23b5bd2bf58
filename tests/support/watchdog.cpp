#include "watchdog.hpp"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace cairn::test {

Watchdog::Watchdog(int rank, std::chrono::seconds limit) : rank_(rank), thread_([this, limit] { watch(limit); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stopping_.notify_all();
  thread_.join();
}

void Watchdog::now_in(std::string what) {
  const std::lock_guard lock(mutex_);
  what_ = std::move(what);
  since_ = Clock::now();
}

void Watchdog::watch(std::chrono::seconds limit) {
  std::unique_lock lock(mutex_);
  // A system-clock wait: GCC 12's thread sanitizer lacks pthread_cond_clockwait and would report a false race.
  const auto deadline = std::chrono::system_clock::now() + limit;
  if (stopping_.wait_until(lock, deadline, [this] { return stop_; })) {
    return;
  }
  const auto stuck = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - since_).count();
  std::fprintf(stderr, "[watchdog] rank %d is stuck in %s for %lld s\n", rank_, what_.c_str(),
               static_cast<long long>(stuck));
  std::fflush(stderr);
  // The launcher kills the other ranks when one ends; first give them time to report.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  std::_Exit(1);
}

}  // namespace cairn::test
