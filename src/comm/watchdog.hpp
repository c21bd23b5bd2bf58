// Measures how long nothing has moved: a stopped rank, a dead storage target or a lost node give no error by
// themselves.
//
// One object lives as long as a communicator, with a thread that makes no MPI calls. Silence counts while a call is
// under way or a wait lasts. A rank that waits for others looks at silent_s() itself, because it can leave its wait
// (Liveness). A rank that is stuck elsewhere, in storage or in MPI-IO, cannot: for it the thread logs a line per limit,
// with phase, file and rank, and calls the callback or ends the job, as asked for. Time in which this whole process was
// stopped (a suspended job) does not count. Zero seconds: nothing is started.
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

constexpr int kWatchdogExitCode = 5;

/// Does with the message what `waiting` says; returns where it asks for an error. On any thread.
void carry_out(const Waiting& waiting, const std::string& message);

class Watchdog {
 public:
  /// `rank_text` names this rank in lines ("rank 3 of 8 (node07)"); `clock` must outlive the object. Throws
  /// std::system_error when there can be no more threads (fault hook: step "thread.watchdog").
  Watchdog(Waiting waiting, std::string rank_text, os::Clock& clock = os::Clock::of_system());
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Rank-local. Silence counts from begin_call() to end_call(); they nest.
  void begin_call();
  void end_call();
  /// Between them this rank waits for others, and looks at silent_s() itself.
  void begin_wait();
  void end_wait();

  /// Rank-local, from any thread: something moved.
  void progress() { moved_.store(true, std::memory_order_relaxed); }
  /// As above, and what comes now. `file` is what is being worked on, or "".
  void progress(std::string_view phase, const std::filesystem::path& file = {});
  /// Names the step that is under way, as agree() does, or "".
  void step(std::string_view name);

  /// How long nothing has moved, as far as counted.
  [[nodiscard]] double silent_s() const { return moved_.load(std::memory_order_relaxed) ? 0 : silent_s_.load(); }
  [[nodiscard]] const Waiting& waiting() const { return waiting_; }
  [[nodiscard]] double limit_s() const { return waiting_.limit_s; }
  /// "in phase 'write', step 'write data files', file 'x'".
  [[nodiscard]] std::string where();

  /// CAIRN_WATCHDOG_S, or `otherwise` when unset; at most os::kLongestWaitS. Throws Error(kUsage) when it is not a number
  /// of seconds.
  static double seconds_from_environment(double otherwise);

 private:
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
