// A clock that only a test moves, for code whose clock can be replaced.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "os/clock.hpp"

namespace cairn::test {

class ManualClock final : public os::Clock {
 public:
  [[nodiscard]] std::chrono::nanoseconds now() const override { return std::chrono::nanoseconds(now_ns_); }
  [[nodiscard]] std::chrono::nanoseconds now_with_sleep() const override { return now(); }
  void sleep_for(std::chrono::nanoseconds time) override { jump(time); }

  void jump(std::chrono::nanoseconds time) { now_ns_ += time.count(); }

  /// Moves the clock, and returns when the thread that waits on it, or is about to, has reacted. Throws if there is no
  /// such thread.
  void pass(std::chrono::nanoseconds time) {
    see_it_wait();
    jump(time);
    see_it_wait();
  }

 private:
  void wait_once(os::Condition& condition, std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds) override {
    ++waits_;
    condition.wait_for(lock, std::chrono::milliseconds(1));
  }
  /// The next wait may have read the old time; the wait after that begins when the reaction is complete.
  void see_it_wait() const {
    constexpr std::chrono::seconds kLimit(60);
    const std::uint64_t before = waits_;
    const auto start = std::chrono::steady_clock::now();
    while (waits_ < before + 2) {
      if (std::chrono::steady_clock::now() - start > kLimit) throw std::logic_error("nothing waits by this clock");
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  std::atomic<std::chrono::nanoseconds::rep> now_ns_{1'000'000'000};
  std::atomic<std::uint64_t> waits_{0};
};

}  // namespace cairn::test
