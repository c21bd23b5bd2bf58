// Clocks for waits. Tests pass a clock that they set themselves (tests/support/manual_clock.hpp).
#pragma once

#include <chrono>
#include <ctime>
#include <mutex>
#include <thread>

#include "os/condition.hpp"

namespace cairn::os {

/// The longest wait, 32 years. Clocks count 292 years of nanoseconds in 64 bits, and waits are added to their values.
inline constexpr double kLongestWaitS = 1e9;

class Clock {
 public:
  virtual ~Clock() = default;

  /// Time since an arbitrary start. Stops while the machine sleeps.
  [[nodiscard]] virtual std::chrono::nanoseconds now() const { return read(CLOCK_MONOTONIC); }
  /// Time since an arbitrary start. Continues while the machine sleeps.
  [[nodiscard]] virtual std::chrono::nanoseconds now_with_sleep() const { return read(CLOCK_BOOTTIME); }
  /// Waits until is_over() is true, at most for `time`.
  template <class Predicate>
  void wait_for(Condition& condition, std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds time,
                Predicate is_over) {
    const auto until = now() + time;
    while (!is_over() && now() < until) wait_once(condition, lock, until - now());
  }
  virtual void sleep_for(std::chrono::nanoseconds time) { std::this_thread::sleep_for(time); }

  static Clock& of_system() {
    static Clock* const clock = new Clock;  // threads may outlive static objects
    return *clock;
  }

 protected:
  /// May return early.
  virtual void wait_once(Condition& condition, std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds time) {
    condition.wait_for(lock, time);
  }

 private:
  static std::chrono::nanoseconds read(clockid_t clock) {
    std::timespec now{};
    ::clock_gettime(clock, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  }
};

}  // namespace cairn::os
