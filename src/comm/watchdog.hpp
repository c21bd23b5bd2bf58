// Measures the time without progress, because a stopped rank, dead storage or a lost node do not report an error.
//
// Each object has a thread, which calls MPI only to end the job. Silence counts during a call or a wait.
//   - A rank that waits for others checks silent_s() itself, because it can leave its wait (Liveness).
//   - A rank that is stuck elsewhere, in storage or in MPI-IO, cannot do so. For such a rank, the thread logs one line
//     per limit, with phase, file and rank, and calls the callback or ends the job, as `waiting` requests.
// Time in which this process was stopped (a suspended job) hardly counts. With a limit of 0 s there is no thread.
#pragma once

#include <atomic>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "cairn/waiting.hpp"
#include "os/clock.hpp"
#include "os/condition.hpp"

namespace cairn::comm {

/// Handles the message as `waiting` requests: calls the callback, ends the job, or does nothing. On any thread.
void carry_out(const Waiting& waiting, const std::string& message);

class Watchdog {
 public:
  /// `rank_text` names this rank in log lines ("rank 3 of 8 (node07)"); `clock` must outlive the object. Throws
  /// std::system_error if no thread can be started (fault hook: step "thread.watchdog").
  Watchdog(Waiting waiting, std::string rank_text, os::Clock& clock = os::Clock::of_system());
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Rank-local. Silence counts from begin_call() to end_call(); these pairs may nest.
  void begin_call();
  void end_call() { end(calls_); }
  /// From begin_wait() to end_wait() this rank waits for others, and checks silent_s() itself.
  void begin_wait() { begin(waits_); }
  void end_wait() { end(waits_); }

  /// Rank-local, from any thread: reports progress.
  void progress() { moved_.store(true, std::memory_order_relaxed); }
  /// As above, and names the phase that begins. `file` is the file being processed, or "".
  void progress(std::string_view phase, const std::filesystem::path& file = {});
  /// Names the current step; agree() calls this. "" for none.
  void step(std::string_view name);

  /// The time without progress.
  [[nodiscard]] double silent_s() const { return moved_.load(std::memory_order_relaxed) ? 0 : silent_s_.load(); }
  [[nodiscard]] const Waiting& waiting() const { return waiting_; }
  [[nodiscard]] double limit_s() const { return waiting_.limit_s; }
  /// "in phase 'write', step 'write data files', file 'x'".
  [[nodiscard]] std::string where();

  /// CAIRN_WATCHDOG_S, or `otherwise` if that is unset or empty; a finite result is at most os::kLongestWaitS. Throws
  /// Error(kUsage) if CAIRN_WATCHDOG_S is invalid.
  static double seconds_from_environment(double otherwise);

 private:
  void begin(int& count);
  void end(int& count);
  void watch();
  [[nodiscard]] std::string where_locked() const;

  const Waiting waiting_;
  const std::string rank_text_;
  os::Clock& clock_;
  std::atomic<bool> moved_{false};
  std::atomic<double> silent_s_{0};
  std::mutex mutex_;
  os::Condition wake_;
  bool done_ = false;
  int calls_ = 0;
  int waits_ = 0;
  std::string phase_ = "start";
  std::string step_;
  std::string file_;
  std::thread thread_;
};

}  // namespace cairn::comm
