// The program's callbacks during its calls and after them; rank-local. Their exceptions are logged, and change nothing.
//
// Progress of long work (Options::progress) is reported by the loops that write, read or compare data. It is cheap:
// without a listener a report costs two comparisons.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string_view>

#include "cairn/report.hpp"

namespace cairn::checkpoint {

/// While the object exists, passes this thread's reports to `tell`, as described at Options::progress. Does nothing if
/// `tell` is empty, or inside another ProgressScope of the thread that passes reports on. `tell` must outlive the
/// object; if `tell` throws, the exception is logged, and `tell` is not called again.
class ProgressScope {
 public:
  using Tell = std::function<void(const Progress&)>;
  explicit ProgressScope(const Tell& tell, std::optional<std::uint64_t> step = {});
  /// Passes on the last report, if that was not done yet, unless the work failed.
  ~ProgressScope();
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;

  void report(std::string_view phase, std::uint64_t done, std::uint64_t total) noexcept;
  void expect(double seconds) noexcept { last_.expected_seconds = seconds; }

 private:
  void tell() noexcept;
  using Clock = std::chrono::steady_clock;
  const Tell* tell_ = nullptr;  ///< null: no listener
  bool is_first_ = false;       ///< this object is the thread's listener
  Progress last_;
  bool is_told_ = true;
  Clock::time_point told_;
  int exceptions_;
};

/// Reports `done` of `total` bytes of `phase`, a literal (see Progress). A smaller `done` begins the phase again.
void report_progress(std::string_view phase, std::uint64_t done, std::uint64_t total) noexcept;

/// Sets Progress::expected_seconds of this thread's reports.
void expect_seconds(double seconds) noexcept;

/// bytes * part / whole; exactly `bytes` if part >= whole.
std::uint64_t share_of_bytes(std::uint64_t bytes, std::uint64_t part, std::uint64_t whole);

/// Tells the program the end of an asynchronous save (AsyncOptions::on_done), if it wants to know. Fills in `end`: the
/// report, or the error of a save that failed.
void tell_end(const std::function<void(const SaveEnd&)>& on_done, SaveEnd end, const Report& report,
              const std::exception_ptr& failure) noexcept;

/// While the object exists, drops the reports of this thread: for a step of a call that reports its progress itself.
class QuietProgress {
 public:
  QuietProgress();
  ~QuietProgress();
  QuietProgress(const QuietProgress&) = delete;
  QuietProgress& operator=(const QuietProgress&) = delete;
};

}  // namespace cairn::checkpoint
