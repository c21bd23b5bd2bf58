// A thread that makes one rank's blocking I/O calls, round by round in order, while the rank is in the exchange.
//
// Nothing here communicates: what a round threw is kept, and thrown where the ranks agree.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace cairn::io {

class RoundWorker {
 public:
  /// Starts the thread; throws std::system_error where there can be no more.
  RoundWorker();
  /// Rounds that have not begun are dropped; the one in progress is waited for.
  ~RoundWorker();
  RoundWorker(const RoundWorker&) = delete;
  RoundWorker& operator=(const RoundWorker&) = delete;

  void begin(std::function<void()> round);
  /// Waits, asleep, until at most `unfinished` rounds are unfinished. After a failure none is: those behind it are dropped.
  void wait(std::size_t unfinished);
  /// Throws what the first round that failed threw.
  void rethrow();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> rounds_;  ///< not begun
  std::size_t unfinished_ = 0;                ///< those, and the one in progress
  bool stopping_ = false;
  std::exception_ptr failure_;
  std::thread thread_;  ///< last: it uses the others
};

}  // namespace cairn::io
