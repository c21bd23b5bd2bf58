// A call of the library while it runs: its phases, each of which is timed and a sign of life; how far it has come; and
// what it reports in the end.
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
/// same order. Takes no memory but its own: to begin a phase cannot fail.
class PhaseClock {
 public:
  using Clock = std::chrono::steady_clock;
  /// `start`: of the whole, when that is not now.
  explicit PhaseClock(Clock::time_point start = Clock::now());
  /// Ends the running phase and begins (or continues) `name`, a literal. At most 16 of them.
  void begin(std::string_view name);
  void add_bytes(std::uint64_t bytes);
  void stop();
  /// Each begin() is progress of this rank from now on; null ends that.
  void watch(std::shared_ptr<comm::Liveness> liveness) { liveness_ = std::move(liveness); }

  /// Collective.
  std::vector<Phase> reduce(comm::Communicator& communicator) const;
  /// Collective: the seconds since construction of the slowest rank.
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

/// A call that ends when the ranks stop moving: a stopped rank or a dead storage target gives no error by itself.
///
/// While it lives, silence of all ranks counts, and every phase that begins, and every operation on a file that this
/// thread ends, is progress. How long silence may last, and what happens then, belongs to the communicator. Simulated
/// ranks are not watched: their waits end by themselves. Calls may be nested.
class Call {
 public:
  explicit Call(comm::Communicator& communicator) : Call(communicator, own_clock_) {}
  /// Goes on with the phases of `clock`, which must outlive it: a reader loads many times.
  Call(comm::Communicator& communicator, PhaseClock& clock);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// As of PhaseClock: the same phases on all ranks, in the same order.
  void begin(std::string_view phase) { clock_.begin(phase); }
  void add_bytes(std::uint64_t bytes) { clock_.add_bytes(bytes); }
  void stop() { clock_.stop(); }
  PhaseClock& clock() { return clock_; }

  /// Collective: ends the running phase, and puts phases and seconds of the call into the report.
  void report(Report& report);

 private:
  comm::Communicator& communicator_;
  PhaseClock own_clock_;
  PhaseClock& clock_;
  std::shared_ptr<comm::Liveness> liveness_;
  std::function<void()> on_work_;
  const std::function<void()>* observer_before_ = nullptr;
};

/// Collective: a call of the public interface. Throws Error(kState) at once when the communicator is dead, and
/// AgreedError(kUsage) before `work` begins when the ranks are in different calls. What `work` throws that is not an Error
/// could not be agreed on: then this rank tells the others, and all throw the same Error(kState).
void run_call(comm::Communicator& communicator, comm::CallName name, const char* phase, comm::Work work);

/// As above, of a part of a call that the ranks agreed on by another communicator.
void run_call(comm::Communicator& communicator, const char* phase, comm::Work work);

// How far long work has come (Options::progress): told by the loops of save, load, verify, convert and diff. Rank-local
// and cheap: where nobody listens a report is one test of a pointer.

/// While it lives, reports of this thread go to `tell`, as often as Options::progress says. Where there is another one
/// on this thread, or `tell` is empty, it does nothing. `tell` must outlive it; what that throws ends there.
class ProgressScope {
 public:
  using Tell = std::function<void(const Progress&)>;
  explicit ProgressScope(const Tell& tell, std::optional<std::uint64_t> step = {});
  /// Gives the end of the last phase, unless the work failed.
  ~ProgressScope();
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;

  void report(std::string_view phase, std::uint64_t done, std::uint64_t total) noexcept;

 private:
  void tell() noexcept;
  using Clock = std::chrono::steady_clock;
  const Tell* tell_ = nullptr;  ///< null: nobody listens
  bool is_first_ = false;       ///< of this thread
  Progress last_;
  bool is_told_ = true;
  Clock::time_point told_;
  int exceptions_;
};

/// `done` of `total` bytes of the phase, a literal, as Progress says. A smaller `done` begins the phase again.
void report_progress(std::string_view phase, std::uint64_t done, std::uint64_t total) noexcept;

/// `bytes` times part over whole; all of them where these are equal.
std::uint64_t share_of_bytes(std::uint64_t bytes, std::uint64_t part, std::uint64_t whole);

/// While it lives this thread reports nothing: for steps of a larger work that tells how far it has come itself.
class QuietProgress {
 public:
  QuietProgress();
  ~QuietProgress();
  QuietProgress(const QuietProgress&) = delete;
  QuietProgress& operator=(const QuietProgress&) = delete;
};

}  // namespace cairn::checkpoint
