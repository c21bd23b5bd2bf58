// A condition variable whose timed waits use CLOCK_MONOTONIC, which cannot be set.
//
// std::condition_variable uses the system clock if the C library lacks pthread_cond_clockwait (glibc before 2.30, as in
// RHEL 8). GCC 12's thread sanitizer does not support that function.
#pragma once

#include <pthread.h>

#include <chrono>
#include <ctime>
#include <mutex>

namespace cairn::os {

class Condition {
 public:
  Condition() {
    pthread_condattr_t attributes;
    ::pthread_condattr_init(&attributes);
    ::pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    ::pthread_cond_init(&condition_, &attributes);
    ::pthread_condattr_destroy(&attributes);
  }
  ~Condition() { ::pthread_cond_destroy(&condition_); }
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  void notify_all() { ::pthread_cond_broadcast(&condition_); }

  template <class Predicate>
  void wait(std::unique_lock<std::mutex>& lock, Predicate is_over) {
    while (!is_over()) ::pthread_cond_wait(&condition_, lock.mutex()->native_handle());
  }

  /// May return early.
  void wait_until(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::time_point time) {
    const auto since_boot = time.time_since_epoch();  // on CLOCK_MONOTONIC, as in every libstdc++ and libc++ on Linux
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_boot);
    const std::timespec until{static_cast<std::time_t>(seconds.count()),
                              static_cast<long>(std::chrono::nanoseconds(since_boot - seconds).count())};
    ::pthread_cond_timedwait(&condition_, lock.mutex()->native_handle(), &until);
  }
  void wait_for(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::duration time) {
    wait_until(lock, std::chrono::steady_clock::now() + time);
  }
  /// Returns the last value of `is_over`.
  template <class Predicate>
  bool wait_for(std::unique_lock<std::mutex>& lock, std::chrono::steady_clock::duration time, Predicate is_over) {
    const auto until = std::chrono::steady_clock::now() + time;
    while (!is_over()) {
      if (std::chrono::steady_clock::now() >= until) return false;
      wait_until(lock, until);
    }
    return true;
  }

 private:
  pthread_cond_t condition_;
};

}  // namespace cairn::os
