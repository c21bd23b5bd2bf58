// Ends a job that makes no progress: a stopped rank, a dead storage target or a lost node give no error by themselves.
//
// One object lives as long as one save or load. progress() beats; when nothing beats for the given time, one line with
// phase, file and rank goes to stderr and the job is ended with exit code kWatchdogExitCode. Time in which this whole
// process was stopped (a suspended job) does not count. Zero seconds: nothing is started.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace cairn::comm {

constexpr int kWatchdogExitCode = 5;

class Watchdog {
 public:
  /// `describe` names this rank in the line ("rank 3 of 8"); it runs on the watchdog's thread, at the end only.
  Watchdog(double seconds, std::function<std::string()> describe);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Rank-local, from any thread: something moved. `file` is what is being worked on, or "".
  void progress(std::string_view phase, const std::filesystem::path& file = {});

  /// CAIRN_WATCHDOG_S, or `otherwise` when unset. Throws Error(kUsage) when it is no number of seconds.
  static double seconds_from_environment(double otherwise);

 private:
  void watch();

  const double seconds_;
  std::function<std::string()> describe_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  double silent_s_ = 0;
  std::string phase_ = "start";
  std::string file_;
  std::thread thread_;
};

}  // namespace cairn::comm
