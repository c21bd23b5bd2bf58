// When a training loop saves, and when it ends: by steps, by time, by advice, on signals, and before the job's time
// limit.
#pragma once

#include <mpi.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cairn/advice.hpp"
#include "cairn/report.hpp"
#include "cairn/waiting.hpp"

namespace cairn {

/// The same on all ranks, apart from `time_limit` (rank 0's) and `waiting`.
struct ScheduleOptions {
  /// A save at every step that is a multiple of this number; 0: none by steps.
  std::uint64_t every_steps = 0;
  /// A save when so many seconds have passed since the last one was due, by rank 0's clock; 0: none by time.
  double every_seconds = 0;
  /// A save at the interval that wastes least for these failures of the job (advice.hpp), by rank 0's clock: the "auto"
  /// of other libraries. Stall and background time are those of the last saves (Schedule::saved()), loading and
  /// restarting as in `costs`. Before the first save `costs` has all of them; if its stall is 0, the first save is due
  /// at the first look, to measure it, and until saved() is called the others are due every hundredth of the MTBF.
  /// Unset: none by advice.
  std::optional<FailureData> failures;
  RunCosts costs;
  /// Signals that ask for a save, as from `scancel --signal=USR1` or `kill`. A signal to one rank is enough.
  std::vector<int> save_signals = {SIGUSR1};
  /// Signals that ask for a save and the end of the loop, as batch systems send them before they kill a job.
  std::vector<int> stop_signals = {SIGTERM};
  /// Whether to save and end before the job's time limit: `time_limit`, or Slurm's, which rank 0 takes from
  /// SLURM_JOB_END_TIME or, once, from `scontrol`. Without a limit there is nothing to meet.
  bool meets_time_limit = true;
  std::optional<std::chrono::system_clock::time_point> time_limit;
  /// The save must be complete this many seconds before the limit. The last save is due earlier, by the longest step
  /// and twice the longest save so far (Schedule::saved()).
  double limit_margin_s = 60;
  /// The limit for waits of Schedule::look() for other ranks (waiting.hpp).
  Waiting waiting;
};

/// The decision about a step; the same on all ranks.
struct Due {
  bool save = false;
  bool stop = false;  ///< save, then end the loop; never without `save`
  std::string why;    ///< on one line: "step 100 is a multiple of 50", "SIGTERM"; empty: nothing is due
};

/// Tells all ranks of a training loop together when to save, and when to end:
///
///   cairn::Schedule schedule(MPI_COMM_WORLD, options);
///   while (step < last) {
///     train(++step);
///     const cairn::Due due = schedule.look(step);
///     if (due.save || step == last) schedule.saved(checkpointer.save(step, state.sources()));
///     if (due.stop) break;
///   }
///
/// With saves in the background, the report of each goes to saved() once:
///
///   std::optional<cairn::SaveTicket> ticket;
///   while (step < last) {
///     train(++step);
///     const cairn::Due due = schedule.look(step);
///     if (ticket && (due.save || step == last || ticket->test())) {
///       schedule.saved(ticket->wait());
///       ticket.reset();
///     }
///     if (due.save || step == last) ticket = checkpointer.save_async(step, state.sources());
///     if (due.stop) break;
///   }
///   if (ticket) ticket->wait();
///
/// Without every_steps, every_seconds and failures, saves are due on signals and before the time limit only.
///
/// From its construction to its destruction, the options' signals do not have their usual effect on this process:
/// a handler of Cairn's notes them, and then calls the function that the program had set for them, if any. A signal is
/// never lost between two looks, and a second one does not end a save that is running. Create the object before the
/// first long step, and end it after the last save.
class Schedule {
 public:
  /// Collective. Throws kUsage on all ranks for options that make no sense or differ between ranks, and the errors of
  /// waiting.hpp.
  explicit Schedule(MPI_Comm communicator, const ScheduleOptions& options = {});
  /// Collective while MPI is up: waits at most ten seconds for ranks that do not end.
  ~Schedule();
  Schedule(Schedule&&) noexcept;
  Schedule& operator=(Schedule&&) noexcept;

  /// Collective, once after each step. Costs one reduction of a few numbers, which runs during the next step: signals
  /// and times are known to all ranks one look later, multiples of steps at once. Throws kUsage on all ranks, one look
  /// later, if ranks look at different steps.
  [[nodiscard]] Due look(std::uint64_t step);

  /// Rank-local: the report of a save, or what SaveTicket::wait() returned. Its times are used for the interval by
  /// advice, and to end early enough before a time limit. Only rank 0's calls have an effect, and no empty report
  /// (of a ticket without a save) has one.
  void saved(const Report& report);

  /// Rank-local. The limit that rank 0 found; nothing on other ranks, and without a limit.
  [[nodiscard]] std::optional<std::chrono::system_clock::time_point> time_limit() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cairn
