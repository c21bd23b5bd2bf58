// Names the rank and the test that hang, shortly before ctest would silently kill the program.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace cairn::test {

class Watchdog {
 public:
  /// Ends the process (exit status 1, after a line on stderr) if the object still exists after `limit`.
  Watchdog(int rank, std::chrono::seconds limit);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Sets the current activity of this rank ("Suite.Name", "the end of Suite.Name").
  void now_in(std::string what);

 private:
  using Clock = std::chrono::steady_clock;
  void watch(std::chrono::seconds limit);

  int rank_;
  std::mutex mutex_;
  std::condition_variable stopping_;
  bool stop_ = false;
  std::string what_ = "start-up";
  Clock::time_point since_ = Clock::now();
  std::thread thread_;
};

}  // namespace cairn::test
