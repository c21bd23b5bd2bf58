// A running call of the library: its communicator, its phases, which are timed and count as progress, and its report.
#pragma once

#include <mpi.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/engine_choice.hpp"
#include "comm/agree.hpp"
#include "comm/call_name.hpp"
#include "comm/communicator.hpp"
#include "format/stored_checkpoint.hpp"

namespace cairn::checkpoint {

/// Rank-local stopwatch with named phases in the order of their first use. For reduce(), every rank must have used the
/// same names in the same order. begin() allocates nothing, so it cannot fail.
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

  /// Collective: the phases of all ranks, combined.
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

/// A call with a time limit for silence (cairn::Waiting): a stopped rank or a dead storage target gives no error.
///
/// While the object exists, each phase that begins and each file operation that this thread completes is progress. The
/// communicator has the limit and the reaction to silence. Calls on simulated ranks have no limit, because waits there
/// end without a watchdog. Calls may be nested.
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

/// Collective: a duplicate of `given` with the time limit options.waiting. Sets the rank in fault hooks and log lines.
std::unique_ptr<comm::Communicator> watched_communicator(MPI_Comm given, const Options& options);

/// Collective: runs a call of the public interface. Throws Error(kState) at once if the communicator is dead, and
/// AgreedError(kUsage) before `work` begins if the ranks are in different calls. If `work` throws anything but an
/// Error, this rank notifies the others, and all throw the same Error(kState); a simulated rank throws kInternal alone.
/// Without a name, for a part of a call, the ranks' calls are not compared: this was done over another communicator.
void run_call(comm::Communicator& communicator, std::optional<comm::CallName> name, const char* phase, comm::Work work);

/// Rank-local: a report about written tensors and the engine, without directory, phases and seconds.
Report report_of(const format::StoredCheckpoint& written, const EngineChoice& engine);

}  // namespace cairn::checkpoint
