// The interval between checkpoints that wastes least time, from the cost of saves and restarts and the failures of a
// job. Arithmetic alone: no call of this header communicates, measures or reads anything.
//
// A job works for T seconds, waits C for a save (the stall), and works on while the checkpoint becomes durable, P
// later. A failure, once in M seconds on average (MTBF), costs the work since the last durable checkpoint was begun, R
// until the program runs again, and L for the load. The waste is the share of the time that is not work in the end:
// 1 - T/E, where E is the expected time for T seconds of work. Failures are independent of each other and of the job's
// state (exponential), also during saves and restarts, so that E is exact:
//
//   E(T) = M exp((P + L + R)/M) (exp((C + max(T, P))/M) - 1)
//
// This is the formula of Daly (2006, section 3) with P in the restart: a restart brings n durable checkpoints if the
// next failure comes later than P + L + R + n (C + T). With T < P each save waits for the one before, and a save is
// made no more often than with T = P. To first order E/T - 1 = C/T + (T/2 + P + L + R)/M.
//
//   Young (1974)           T = sqrt(2CM)
//   Daly (2006)            T = sqrt(2CM) (1 + sqrt(C/2M)/3 + (C/2M)/9) - C for C < 2M, else M
//   optimum                the smallest E(T)/T: T = M x, x + ln(1 - x) = -C/M (Bougeret et al., SC 2011, with Lambert's
//                          W: x = 1 + W(-exp(-1 - C/M))), but at least P and a step, and in whole steps
//   Saxena et al. (2024)   arXiv 2410.18124, largest availability: Tc = C + sqrt(2(M + L + R)C + C^2). Their Tc is
//                          from save to save, the save included; T = Tc - C
//   guide                  E = cost(run) + P(failure) N/2 cost of a step + (steps of the run / N) C is smallest for
//                          T = sqrt(2 C run / P(failure)), with P(failure) = 1 - exp(-run/M). It counts one failure at
//                          most, so T is too long for runs longer than M; for short ones, and for a run of unknown
//                          length, P(failure) = run/M, and T is Young's
//
// P, L and R add to the waste, and leave the optimum as it is unless T < P.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

/// Seconds that saves and restarts cost, measured or expected. 0 to 1e9 each.
struct RunCosts {
  double stall_s = 0;       ///< C: the program waits this long in each save
  double background_s = 0;  ///< P: from the end of the stall until the checkpoint is durable; 0: synchronous saves
  double load_s = 0;        ///< L: loading a checkpoint after a failure
  double restart_s = 0;     ///< R: from the failure until the load begins: detection, queue, start of the program
  double step_s = 0;        ///< a training step, at least 1e-6; 0: unknown, and intervals are not rounded to steps
};

/// Failures of the job: one of `mtbf_s`, `nodes`, or `observed` with `observed_hours`.
struct FailureData {
  std::optional<double> mtbf_s;  ///< M: mean time between failures of the whole job, seconds

  std::optional<std::uint64_t> nodes;  ///< of the job; M = 1000 days / (nodes * rate)
  /// Failures in 1000 node-days. Unset: kPublishedRate, and Advice::notes says so.
  std::optional<double> per_1000_node_days;

  /// Failures of this job in `observed_hours`. M = hours / failures; without any failure, hours / 0.5.
  std::optional<std::uint64_t> observed;
  std::optional<double> observed_hours;
};

/// Failures in 1000 node-days of nodes with 8 GPUs: Meta's cluster RSC-1 (Kokolis et al., HPCA 2025, arXiv 2410.21680).
inline constexpr double kPublishedRate = 6.5;

struct AdviceInput {
  RunCosts costs;
  FailureData failures;
  double run_s = 0;  ///< seconds of the whole run, for the guide's formula, at least 1e-6; 0: unknown
};

/// A time between two saves.
struct SaveInterval {
  double seconds = 0;       ///< of work, without the stall
  std::uint64_t steps = 0;  ///< the same in steps, at least 1; 0: RunCosts::step_s is unknown
  double waste = 0;         ///< share of the time, 0 to 1, when saves are made at this interval
};

struct SaveIntervals {
  SaveInterval shortest;
  SaveInterval longest;
};

/// The result of one published formula: `interval.seconds` is as the formula has it, `steps` the nearest number from 1
/// on, and `waste` the exact one, of these steps if they are known.
struct AdviceFormula {
  std::string name;    ///< "Young", "Daly", "optimum", "Saxena", "guide"
  std::string source;  ///< year or paper
  SaveInterval interval;
};

enum class CostTerm { kNone, kStall, kBackground, kLoad, kRestart };

/// "stall", "background", "load", "restart"; "" for kNone.
const char* name_of(CostTerm term) noexcept;

/// A cost and its part in the waste.
struct CostShare {
  CostTerm term = CostTerm::kNone;
  double seconds = 0;
  /// Part of Advice::best.waste. The parts, with Advice::lost_work, are C/T, P/M, L/M, R/M and T/2M, scaled so that
  /// their sum is the waste.
  double waste = 0;
  /// The waste falls by this much when the cost is halved and the interval chosen anew (not rounded to steps).
  double saved_if_halved = 0;
};

/// The bound that keeps the interval above the one with the least waste.
enum class IntervalBound {
  kNone,
  kBackground,  ///< P: saves would wait for each other
  kStep,        ///< one step
};

struct Advice {
  SaveInterval best;
  IntervalBound bound = IntervalBound::kNone;
  /// Intervals whose waste is at most 1.05 times that of `best`, for the MTBF `mtbf_s`.
  SaveIntervals band;

  double mtbf_s = 0;  ///< M, as given or estimated
  /// M with 90 % probability, where failures were observed; else equal to `mtbf_s`. Jeffreys' interval of a Poisson
  /// rate: 0.05 and 0.95 quantiles of the gamma distribution with shape failures + 1/2 and scale 1/hours.
  double mtbf_low_s = 0;
  double mtbf_high_s = 0;
  double waste_at_mtbf_low = 0;   ///< waste at `best` if M is `mtbf_low_s`
  double waste_at_mtbf_high = 0;  ///< and `mtbf_high_s`
  /// The bands for all M from `mtbf_low_s` to `mtbf_high_s` together: an interval outside is more than 1.05 times as
  /// bad as the best, whatever M is. `waste` is that for `mtbf_s`.
  SaveIntervals likely_band;

  std::vector<CostShare> costs;           ///< stall, background, load, restart
  double lost_work = 0;                   ///< part of `best.waste`: work that is done again
  CostTerm mend_first = CostTerm::kNone;  ///< with the largest `saved_if_halved`; kNone: all are 0
  double first_order_waste = 0;           ///< C/T + (T/2 + P + L + R)/M at `best`: too large from about 0.2 on

  std::vector<AdviceFormula> formulas;
  double guide_failures = 0;       ///< P(failure) of the guide's formula; 0: run_s is unknown
  std::vector<std::string> notes;  ///< one line each: everything that was assumed
};

/// Rank-local, pure. Throws Error(kUsage), with one line that says what to give or change: for numbers that are
/// negative, not finite or beyond the ranges above; without failure data, or with two kinds of it; when stall,
/// background time and step are all 0; and for a job that makes no progress: M <= C, M <= L + R, or less than a tenth
/// of the time is work at the best interval.
Advice advise(const AdviceInput& input);

/// The exact waste, 0 to 1, at an interval of `seconds` of work: 1 - T/E(T). Requires: finite costs from 0 on, seconds
/// and mtbf_s above 0.
double waste_at(const RunCosts& costs, double mtbf_s, double seconds) noexcept;

}  // namespace cairn
