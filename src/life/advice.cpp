// The interval between saves: estimates of the MTBF, the exact waste and its minimum, bands and published formulas.
// include/cairn/advice.hpp has the model and the sources.
#include "cairn/advice.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "life/duration.hpp"

namespace cairn {
namespace {

using life::shown_duration;

constexpr double kMostSeconds = 1e9;    // of a cost
constexpr double kShortestStep = 1e-6;  // and run; with the next: steps of an interval fit 64 bits
constexpr double kLongestMtbf = 1e12;   // seconds
constexpr double kBand = 1.05;          // of the least waste
constexpr double kLeastWork = 0.1;      // share of the time
constexpr double kTail = 0.05;          // probability on each side of the MTBF's interval
constexpr double kNoFailure = 0.5;      // failures to count when none was observed
constexpr double kSecondsOfHour = 3600;
constexpr double kSecondsOf1000Days = 86'400'000;
constexpr int kHalvings = 200;  // of an interval of doubles: until it has no number between its ends

Error usage(const std::string& text) { return {ErrorKind::kUsage, text}; }

/// The x in [low, high] at which the increasing function becomes 0.
template <class Function>
double zero_of(Function increasing, double low, double high) {
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = low + (high - low) / 2;
    (increasing(middle) < 0 ? low : high) = middle;
  }
  return high;
}

// The MTBF.

struct Mtbf {
  double seconds = 0;
  double low = 0;
  double high = 0;
};

/// The regularised lower incomplete gamma function P(shape, x), by its series below shape + 1 and else by its continued
/// fraction (Press et al., Numerical Recipes, 6.2).
double lower_gamma(double shape, double x) {
  constexpr int kMostTerms = 100'000;
  constexpr double kSmall = 1e-15;
  const double scale = std::exp(-x + shape * std::log(x) - std::lgamma(shape));
  if (x < shape + 1) {
    double term = 1 / shape;
    double sum = term;
    for (int i = 1; i < kMostTerms && term > sum * kSmall; ++i) {
      term *= x / (shape + i);
      sum += term;
    }
    return sum * scale;
  }
  double b = x + 1 - shape;
  double c = std::numeric_limits<double>::max();
  double d = 1 / b;
  double fraction = d;
  for (int i = 1; i < kMostTerms; ++i) {
    const double a = -i * (i - shape);
    b += 2;
    d = 1 / (a * d + b);
    c = b + a / c;
    fraction *= d * c;
    if (std::abs(d * c - 1) < kSmall) break;
  }
  return 1 - scale * fraction;
}

/// The x for which P(shape, x) is `probability`, 0.05 or 0.95.
double gamma_quantile(double shape, double probability) {
  constexpr double kLargeShape = 10'000;
  constexpr double kNormalQuantile = 1.6448536269514722;  // 0.95 of the normal distribution
  if (shape > kLargeShape) {  // Wilson and Hilferty (1931): wrong by less than 1e-6 of the value here
    const double z = probability < 0.5 ? -kNormalQuantile : kNormalQuantile;
    const double root = 1 - 1 / (9 * shape) + z / (3 * std::sqrt(shape));
    return shape * root * root * root;
  }
  const double most = shape + 10 * std::sqrt(shape) + 10;
  return zero_of([&](double x) { return lower_gamma(shape, x) - probability; }, 0, most);
}

Mtbf mtbf_of_history(std::uint64_t failures, double hours, std::vector<std::string>& notes) {
  const auto count = static_cast<double>(failures);
  const double seconds = hours * kSecondsOfHour;
  if (failures == 0) {
    notes.push_back(fmt::format("no failure in {:g} h: the MTBF is taken as {:g} h, as for half a failure", hours,
                                hours / kNoFailure));
  }
  return {seconds / (failures == 0 ? kNoFailure : count), seconds / gamma_quantile(count + 0.5, 1 - kTail),
          std::min(seconds / gamma_quantile(count + 0.5, kTail), kLongestMtbf)};
}

void check_positive(double value, const char* name) {
  if (!(std::isfinite(value) && value > 0)) {
    throw usage(fmt::format("{} is {}: give a number above 0", name, value));
  }
}

Mtbf mtbf_of(const FailureData& data, std::vector<std::string>& notes) {
  const int kinds = (data.mtbf_s ? 1 : 0) + (data.nodes ? 1 : 0) + (data.observed ? 1 : 0);
  if (kinds == 0) {
    throw usage(
        "nothing says how often the job fails: give its MTBF, or its nodes and their failures in 1000 node-days, or "
        "the "
        "failures that were observed and in how many hours");
  }
  if (kinds > 1) {
    throw usage("there are several kinds of failure data: give one of the MTBF, the nodes, or the observed failures");
  }
  if (data.per_1000_node_days && !data.nodes) throw usage("a rate in 1000 node-days needs the number of nodes");
  if (data.observed.has_value() != data.observed_hours.has_value()) {
    throw usage("observed failures and the hours in which they were observed belong together: give both");
  }
  Mtbf mtbf;
  if (data.mtbf_s) {
    check_positive(*data.mtbf_s, "the MTBF");
    mtbf = {*data.mtbf_s, *data.mtbf_s, *data.mtbf_s};
  } else if (data.nodes) {
    const double rate = data.per_1000_node_days.value_or(kPublishedRate);
    check_positive(static_cast<double>(*data.nodes), "the number of nodes");
    check_positive(rate, "the failures in 1000 node-days");
    if (!data.per_1000_node_days) {
      notes.push_back(
          fmt::format("the rate of failures is not this machine's: {} in 1000 node-days, of nodes with 8 GPUs (Kokolis "
                      "et al., 2025)",
                      kPublishedRate));
    }
    const double seconds = kSecondsOf1000Days / (static_cast<double>(*data.nodes) * rate);
    mtbf = {seconds, seconds, seconds};
  } else {
    check_positive(*data.observed_hours, "the number of observed hours");
    mtbf = mtbf_of_history(*data.observed, *data.observed_hours, notes);
  }
  if (!(mtbf.seconds <= kLongestMtbf) || !(mtbf.low > 0)) {
    throw usage(
        fmt::format("the MTBF of {:.3g} s is out of range: it may be up to {:.0e} s", mtbf.seconds, kLongestMtbf));
  }
  return mtbf;
}

// The waste at an interval, and its minimum.

double downtime(const RunCosts& costs) { return costs.background_s + costs.load_s + costs.restart_s; }

/// The T with the least waste when nothing bounds it.
double free_optimum(double stall_s, double mtbf_s) {
  const double ratio = stall_s / mtbf_s;
  constexpr double kTiny = 1e-14;  // below, log1p(-x) + x has no digits left
  if (ratio < kTiny) return mtbf_s * std::sqrt(2 * ratio);
  return mtbf_s * zero_of([&](double x) { return -(x + std::log1p(-x) + ratio); }, 0, 1);
}

double optimum(const RunCosts& costs, double mtbf_s) {
  return std::max({free_optimum(costs.stall_s, mtbf_s), costs.background_s, costs.step_s});
}

double least_waste(const RunCosts& costs, double mtbf_s) {
  const double seconds = optimum(costs, mtbf_s);
  return seconds > 0 ? waste_at(costs, mtbf_s, seconds) : 0;
}

/// Steps of at least P together.
double fewest_steps(const RunCosts& costs) {
  constexpr double kRounding = 1e-9;
  return std::max(1.0, std::ceil(costs.background_s / costs.step_s * (1 - kRounding)));
}

SaveInterval interval_of(const RunCosts& costs, double mtbf_s, double seconds) {
  return {seconds, 0, seconds > 0 ? waste_at(costs, mtbf_s, seconds) : 1};
}

SaveInterval interval_of_steps(const RunCosts& costs, double mtbf_s, double steps) {
  const double seconds = steps * costs.step_s;
  return {seconds, static_cast<std::uint64_t>(steps), waste_at(costs, mtbf_s, seconds)};
}

SaveInterval best_of(const RunCosts& costs, double mtbf_s) {
  const double seconds = optimum(costs, mtbf_s);
  if (costs.step_s == 0) return interval_of(costs, mtbf_s, seconds);
  const double below = std::max(fewest_steps(costs), std::floor(seconds / costs.step_s));
  const SaveInterval fewer = interval_of_steps(costs, mtbf_s, below);
  const SaveInterval more = interval_of_steps(costs, mtbf_s, below + 1);
  return more.waste < fewer.waste ? more : fewer;
}

/// The intervals whose waste is at most kBand times the least one; in seconds, from P and a step on.
std::pair<double, double> band_of(const RunCosts& costs, double mtbf_s) {
  const double least = optimum(costs, mtbf_s);
  const double lowest = std::max(costs.background_s, costs.step_s);
  const double waste = waste_at(costs, mtbf_s, least);
  const double most = std::min(kBand * waste, (1 + waste) / 2);  // the second: below 1 in any case
  const auto above = [&](double seconds) { return waste_at(costs, mtbf_s, seconds) - most; };
  double high = least;
  while (above(high) < 0) high *= 2;
  const double longest = zero_of(above, least, high);
  const bool has_lower_end = lowest < least && (lowest == 0 || above(lowest) > 0);
  const double shortest = has_lower_end ? zero_of([&](double t) { return -above(t); }, lowest, least) : lowest;
  return {shortest, longest};
}

/// The ends of a band, inwards to whole steps, which hold `best`. `waste` is of `mtbf_s`.
SaveIntervals intervals_of(const RunCosts& costs, double mtbf_s, std::pair<double, double> band,
                           const SaveInterval& best) {
  if (costs.step_s == 0) {
    return {interval_of(costs, mtbf_s, std::min(band.first, best.seconds)),
            interval_of(costs, mtbf_s, std::max(band.second, best.seconds))};
  }
  const auto steps = static_cast<double>(best.steps);
  const double fewest = std::min(steps, std::ceil(band.first / costs.step_s));
  const double most = std::max(steps, std::floor(band.second / costs.step_s));
  return {interval_of_steps(costs, mtbf_s, std::max(fewest, fewest_steps(costs))),
          interval_of_steps(costs, mtbf_s, most)};
}

// Parts of the waste.

double RunCosts::*member_of(CostTerm term) {
  switch (term) {
    case CostTerm::kStall: return &RunCosts::stall_s;
    case CostTerm::kBackground: return &RunCosts::background_s;
    case CostTerm::kLoad: return &RunCosts::load_s;
    case CostTerm::kRestart:
    case CostTerm::kNone: break;
  }
  return &RunCosts::restart_s;
}

void add_costs(Advice& advice, const RunCosts& costs) {
  const double seconds = advice.best.seconds;
  const double lost = seconds / 2 / advice.mtbf_s;
  const double stall = costs.stall_s / seconds;
  advice.first_order_waste = stall + lost + downtime(costs) / advice.mtbf_s;
  const double scale = advice.best.waste / advice.first_order_waste;
  advice.lost_work = lost * scale;
  double most = 0;
  const double least = least_waste(costs, advice.mtbf_s);
  for (const CostTerm term : {CostTerm::kStall, CostTerm::kBackground, CostTerm::kLoad, CostTerm::kRestart}) {
    RunCosts halved = costs;
    const double cost = costs.*member_of(term);
    halved.*member_of(term) = cost / 2;
    const double saved = cost == 0 ? 0 : std::max(0.0, least - least_waste(halved, advice.mtbf_s));
    const double part = term == CostTerm::kStall ? stall : cost / advice.mtbf_s;
    advice.costs.push_back({term, cost, part * scale, saved});
    if (saved <= most) continue;
    most = saved;
    advice.mend_first = term;
  }
}

// Formulas.

void add_formula(Advice& advice, const RunCosts& costs, const char* name, const char* source, double seconds) {
  SaveInterval interval = interval_of(costs, advice.mtbf_s, seconds);
  if (costs.step_s != 0) {
    interval = interval_of_steps(costs, advice.mtbf_s, std::max(1.0, std::round(seconds / costs.step_s)));
    interval.seconds = seconds;
  }
  advice.formulas.push_back({name, source, interval});
}

void add_formulas(Advice& advice, const AdviceInput& input) {
  const RunCosts& costs = input.costs;
  const double stall = costs.stall_s;
  const double mtbf = advice.mtbf_s;
  const double young = std::sqrt(2 * stall * mtbf);
  const double ratio = stall / (2 * mtbf);
  const double daly = ratio < 1 ? young * (1 + std::sqrt(ratio) / 3 + ratio / 9) - stall : mtbf;
  const double saxena = std::sqrt(2 * (mtbf + costs.load_s + costs.restart_s) * stall + stall * stall);
  if (input.run_s > 0) advice.guide_failures = -std::expm1(-input.run_s / mtbf);
  const double guide = input.run_s > 0 ? std::sqrt(2 * stall * (input.run_s / advice.guide_failures)) : young;
  add_formula(advice, costs, "Young", "1974", young);
  add_formula(advice, costs, "Daly", "2006, higher order", daly);
  add_formula(advice, costs, "optimum", "exact, asynchronous saves", optimum(costs, mtbf));
  add_formula(advice, costs, "Saxena", "et al. 2024, availability", saxena);
  add_formula(advice, costs, "guide", input.run_s > 0 ? "one failure at most" : "run of unknown length", guide);
}

// Checks.

void check_costs(const AdviceInput& input) {
  const RunCosts& costs = input.costs;
  const std::array<std::pair<const char*, double>, 6> all = {{{"stall", costs.stall_s},
                                                              {"background time", costs.background_s},
                                                              {"load time", costs.load_s},
                                                              {"restart time", costs.restart_s},
                                                              {"step time", costs.step_s},
                                                              {"length of the run", input.run_s}}};
  for (const auto& [name, seconds] : all) {
    if (std::isfinite(seconds) && seconds >= 0 && seconds <= kMostSeconds) continue;
    throw usage(fmt::format("the {} is {} s: give a number from 0 to {:.0e}", name, seconds, kMostSeconds));
  }
  for (const auto& [name, seconds] : {all[4], all[5]}) {
    if (seconds == 0 || seconds >= kShortestStep) continue;
    throw usage(fmt::format("the {} is {} s: give at least {}, or 0 if it is not known", name, seconds, kShortestStep));
  }
  if (costs.stall_s == 0 && costs.background_s == 0 && costs.step_s == 0) {
    throw usage(
        "saves that cost nothing could be made at every moment: give the stall, the background time or the step");
  }
}

void check_progress(const RunCosts& costs, double mtbf_s, double least) {
  const double restart = costs.load_s + costs.restart_s;
  const std::string fails =
      fmt::format("the job makes no progress: it fails every {} on average", shown_duration(mtbf_s));
  if (mtbf_s <= costs.stall_s) {
    throw usage(fmt::format("{}, and a save stops it for {}; make failures rarer or saves quicker", fails,
                            shown_duration(costs.stall_s)));
  }
  if (mtbf_s <= restart) {
    throw usage(fmt::format("{}, and a restart with its load takes {}; make failures rarer or restarts quicker", fails,
                            shown_duration(restart)));
  }
  if (1 - least < kLeastWork) {
    throw usage(
        fmt::format("{}, and at the best interval {:.2g} % of the time would be work (stall {}, background {}, load "
                    "{}, restart {}); make failures rarer or these costs smaller",
                    fails, 100 * (1 - least), shown_duration(costs.stall_s), shown_duration(costs.background_s),
                    shown_duration(costs.load_s), shown_duration(costs.restart_s)));
  }
}

}  // namespace

const char* name_of(CostTerm term) noexcept {
  switch (term) {
    case CostTerm::kNone: return "";
    case CostTerm::kStall: return "stall";
    case CostTerm::kBackground: return "background";
    case CostTerm::kLoad: return "load";
    case CostTerm::kRestart: return "restart";
  }
  return "";
}

double waste_at(const RunCosts& costs, double mtbf_s, double seconds) noexcept {
  const double cycle = costs.stall_s + std::max(seconds, costs.background_s);
  const double work = seconds / mtbf_s / std::expm1(cycle / mtbf_s) * std::exp(-downtime(costs) / mtbf_s);
  return std::clamp(1 - work, 0.0, 1.0);
}

Advice advise(const AdviceInput& input) {
  const RunCosts& costs = input.costs;
  check_costs(input);
  Advice advice;
  const Mtbf mtbf = mtbf_of(input.failures, advice.notes);
  advice.mtbf_s = mtbf.seconds;
  advice.mtbf_low_s = mtbf.low;
  advice.mtbf_high_s = mtbf.high;
  const double seconds = optimum(costs, mtbf.seconds);
  check_progress(costs, mtbf.seconds, waste_at(costs, mtbf.seconds, seconds));

  advice.best = best_of(costs, mtbf.seconds);
  if (free_optimum(costs.stall_s, mtbf.seconds) < seconds) {
    advice.bound = costs.background_s > costs.step_s ? IntervalBound::kBackground : IntervalBound::kStep;
  }
  const auto band = band_of(costs, mtbf.seconds);
  advice.band = intervals_of(costs, mtbf.seconds, band, advice.best);
  const bool is_known = mtbf.low == mtbf.high;
  const std::pair<double, double> likely =
      is_known ? band : std::pair(band_of(costs, mtbf.low).first, band_of(costs, mtbf.high).second);
  advice.likely_band = intervals_of(costs, mtbf.seconds, likely, advice.best);
  advice.waste_at_mtbf_low = waste_at(costs, mtbf.low, advice.best.seconds);
  advice.waste_at_mtbf_high = waste_at(costs, mtbf.high, advice.best.seconds);
  add_costs(advice, costs);
  add_formulas(advice, input);
  return advice;
}

}  // namespace cairn
