// A running call of the library: its phases, which are timed and count as progress, its progress reports, and its
// report.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "comm/agree.hpp"
#include "comm/call_name.hpp"
#include "comm/communicator.hpp"

namespace cairn::checkpoint {

/// Rank-local stopwatch with named phases in the order of their first use. Every rank must use the same names in the
/// same order. Allocates nothing: begin() cannot fail.
class PhaseClock {
 public:
  using Clock = std::chrono::steady_clock;
  explicit PhaseClock(Clock::time_point start = Clock::now());
  /// Ends the running phase and begins or continues phase `name`, a literal. At most 16 names.
  void begin(std::string_view name);
  void add_bytes(std::uint64_t bytes);
  void stop();
  /// From now on each begin() counts as progress of this rank; null ends this.
  void watch(std::shared_ptr<comm::Liveness> liveness) { liveness_ = std::move(liveness); }

  /// Collective.
  std::vector<Phase> reduce(comm::Communicator& communicator) const;
  /// Collective: the seconds since `start` on the slowest rank.
  double slowest_seconds(comm::Communicator& communicator) const;

 private:
  struct Row {
    std::string_view name;
    double seconds = 0;
    std::uint64_t bytes = 0;
  };
  Clock::time_point start_;
  Clock::time_point phase_start_;
  [[nodiscard]] std::span<const Row> rows() const { return std::span(rows_).first(count_); }

  std::array<Row, 16> rows_;
  std::size_t count_ = 0;
  std::size_t current_;
  std::shared_ptr<comm::Liveness> liveness_;
};

/// A call that the watchdog ends if all ranks are silent: a stopped rank or a dead storage target gives no error.
///
/// While the object exists, each phase that begins and each file operation that this thread completes is progress. The
/// communicator has the time limit for silence and the reaction to it. Simulated ranks are not watched: their waits end
/// without a watchdog. Calls may be nested.
class Call {
 public:
  explicit Call(comm::Communicator& communicator) : Call(communicator, own_clock_) {}
  /// Continues the phases of `clock`, which must outlive the object: a reader loads many times.
  Call(comm::Communicator& communicator, PhaseClock& clock);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// As PhaseClock::begin(): the same phases on all ranks, in the same order.
  void begin(std::string_view phase) { clock_.begin(phase); }
  void add_bytes(std::uint64_t bytes) { clock_.add_bytes(bytes); }
  void stop() { clock_.stop(); }
  PhaseClock& clock() { return clock_; }

  /// Collective: ends the running phase, and fills in the report's phases and seconds.
  void report(Report& report);

 private:
  comm::Communicator& communicator_;
  PhaseClock own_clock_;
  PhaseClock& clock_;
  std::shared_ptr<comm::Liveness> liveness_;
  std::function<void()> on_work_;
  const std::function<void()>* observer_before_ = nullptr;
};

/// Collective: runs a call of the public interface. Throws Error(kState) at once if the communicator is dead, and
/// AgreedError(kUsage) before `work` begins if the ranks are in different calls. After an exception other than Error,
/// this rank notifies the others, and all throw the same Error(kState).
void run_call(comm::Communicator& communicator, comm::CallName name, const char* phase, comm::Work work);

/// As above, for a part of a call that the ranks agreed on over another communicator.
void run_call(comm::Communicator& communicator, const char* phase, comm::Work work);

// Progress of long work (Options::progress), reported by the loops of save, load, verify, convert and diff. Rank-local
// and cheap: without a listener a report costs two comparisons.

/// While the object exists, passes this thread's reports to `tell`, as described at Options::progress. Does nothing if
/// `tell` is empty, or inside another ProgressScope of the thread. `tell` must outlive the object; its exceptions are
/// logged.
class ProgressScope {
 public:
  using Tell = std::function<void(const Progress&)>;
  explicit ProgressScope(const Tell& tell, std::optional<std::uint64_t> step = {});
  /// Reports the end of the last phase, unless the work failed.
  ~ProgressScope();
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;

  void report(std::string_view phase, std::uint64_t done, std::uint64_t total) noexcept;

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

/// bytes * part / whole; exactly `bytes` if part >= whole.
std::uint64_t share_of_bytes(std::uint64_t bytes, std::uint64_t part, std::uint64_t whole);

/// Silences the reports of this thread: for steps of a larger work that reports its own progress.
class QuietProgress {
 public:
  QuietProgress();
  ~QuietProgress();
  QuietProgress(const QuietProgress&) = delete;
  QuietProgress& operator=(const QuietProgress&) = delete;
};

}  // namespace cairn::checkpoint
