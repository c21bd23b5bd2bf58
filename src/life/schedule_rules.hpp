// The decisions of Schedule, without ranks, clocks and signals: pure, but for what it remembers.
//
// Each look first decides, from the numbers that all ranks agreed on since the last look, and then asks: it makes this
// rank's numbers, whose maxima the next look decides from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>

#include "cairn/schedule.hpp"

namespace cairn::life {

/// Indexes of the numbers of which all ranks take the maxima. None is below 0.
enum Ask : std::size_t {
  kAskSave,      ///< number of a signal that asks for a save; 0: none
  kAskStop,      ///< number of a signal that asks for the end; 0: none
  kAskTime,      ///< seconds since the last save, once one is due by time or advice (rank 0); 0: not yet
  kAskLimit,     ///< the time limit, in seconds since 1970, once it is near (rank 0); 0: it is not
  kAskStep,      ///< the step
  kAskStepBack,  ///< kMostStep minus the step: equal steps have sums of kMostStep
  kAsks,
};
using Asked = std::array<std::int64_t, kAsks>;

constexpr std::int64_t kMostStep = std::int64_t{1} << 62;

/// Rank 0's clocks, in seconds; other ranks give nothing.
struct Times {
  double steady = 0;  ///< since an arbitrary start
  double wall = 0;    ///< since 1970
};

class ScheduleRules {
 public:
  /// Throws Error(kUsage) for options that make no sense. `now`: set on rank 0, which alone decides about time.
  ScheduleRules(const ScheduleOptions& options, std::optional<double> time_limit, const std::optional<Times>& now);

  /// The decision at this step. `agreed`: the maxima of the last look's numbers; empty at the first look. Throws
  /// Error(kUsage) if the ranks' last steps differed.
  Due decide(std::uint64_t step, std::span<const std::int64_t> agreed, const std::optional<Times>& now);
  /// This rank's numbers, after decide() for the same step. Signals that arrived before a step that is saved are served
  /// by that save.
  Asked ask(std::uint64_t step, int save_signal, int stop_signal, const std::optional<Times>& now);

  void saved(const Report& report);
  /// Seconds between two saves by advice; 0: a save is due at once, to measure it; nothing: none by advice.
  [[nodiscard]] std::optional<double> advised_seconds() const { return advised_; }
  /// The last save is due so many seconds before the limit.
  [[nodiscard]] double seconds_before_limit() const;

 private:
  void advise_again();

  ScheduleOptions options_;
  std::optional<double> advised_;
  double unmeasured_ = 0;          ///< `advised_` between the first save and its report
  std::deque<RunCosts> measured_;  ///< stalls and background times of the last saves
  std::optional<double> time_limit_;
  double last_due_ = 0;  ///< Times::steady of the last save that was due
  std::optional<double> last_look_;
  double longest_step_ = 0;
  double longest_save_ = 0;
  bool saves_now_ = false;  ///< the last decision
};

/// "SIGTERM" for SIGTERM, "signal 40" for signals without a name.
std::string name_of_signal(int signal);

}  // namespace cairn::life
