// Advice against a job that is simulated event by event: its waste is predicted, and near the least that any interval
// reaches. The simulation knows no formula of the advice.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "cairn/advice.hpp"

namespace cairn {
namespace {

constexpr std::size_t kFailures = 10'000;

/// Times between failures, in MTBFs: the same for all intervals of a scenario, which then differ by less than the luck.
std::vector<double> draw_failures(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::exponential_distribution<double> until(1.0);
  std::vector<double> times(kFailures);
  for (double& time : times) time = until(random);
  return times;
}

/// The share of the time that is not work in the end, in a job with asynchronous saves that works `seconds` between
/// them. A save waits until the one before is durable, then stops the job for the stall. A failure takes the job back
/// to the last durable save; failures happen during saves, restarts and loads as well.
double simulate(const RunCosts& costs, double mtbf_s, double seconds, const std::vector<double>& failures) {
  double total = 0;
  double kept = 0;  // work that is in durable saves
  for (const double failure : failures) {
    const double fails_at = failure * mtbf_s;
    total += fails_at;
    double now = costs.restart_s + costs.load_s;
    double work = kept;
    double saved = kept;               // work in the save that is being made durable
    std::optional<double> durable_at;  // of that save
    while (now < fails_at) {
      now += seconds;
      work += seconds;
      if (durable_at) {
        if (*durable_at < fails_at) kept = saved;
        now = std::max(now, *durable_at);
      }
      now += costs.stall_s;
      if (now >= fails_at) break;
      saved = work;
      durable_at = now + costs.background_s;
    }
  }
  return 1 - kept / total;
}

struct Scenario {
  const char* name;
  RunCosts costs;
  double mtbf_s;
};

const Scenario kScenarios[] = {
    {"a stall of 1 s at 16,384 GPUs", {1, 5, 60, 240, 0}, 11'136},
    {"a synchronous save of 60 s", {60, 0, 60, 240, 0}, 40'000},
    {"saves in the background, whole steps", {5, 60, 30, 120, 15}, 6'000},
    {"a background time that bounds the interval", {0.5, 300, 30, 60, 0}, 6'000},
    {"a background time that bounds whole steps", {0.5, 300, 30, 60, 40}, 6'000},
    {"failures every ten minutes", {10, 20, 30, 60, 4}, 600},
    {"steps that are longer than the interval", {1, 2, 3, 60, 500}, 3'000},
};

TEST(AdviceSimulation, TheWasteIsPredicted) {
  for (const Scenario& scenario : kScenarios) {
    const std::vector<double> failures = draw_failures(7);
    AdviceInput input;
    input.costs = scenario.costs;
    input.failures.mtbf_s = scenario.mtbf_s;
    const double best = advise(input).best.seconds;
    for (const double factor : {0.3, 1.0, 3.0}) {
      const double seconds = best * factor;
      const double simulated = simulate(scenario.costs, scenario.mtbf_s, seconds, failures);
      EXPECT_NEAR(waste_at(scenario.costs, scenario.mtbf_s, seconds) / simulated, 1, 0.04)
          << scenario.name << ", " << seconds << " s, simulated " << simulated;
    }
  }
}

/// The least simulated waste of any interval from a tenth to ten times `seconds`, of whole steps if they are known.
double least_simulated(const Scenario& scenario, double seconds, const std::vector<double>& failures) {
  double least = 1;
  for (double factor = 0.1; factor < 10; factor *= 1.25) {
    double at = seconds * factor;
    const double step_s = scenario.costs.step_s;
    if (step_s > 0) at = std::max(1.0, std::round(at / step_s)) * step_s;
    least = std::min(least, simulate(scenario.costs, scenario.mtbf_s, at, failures));
  }
  return least;
}

TEST(AdviceSimulation, TheAdviceIsNearTheOptimum) {
  for (const Scenario& scenario : kScenarios) {
    for (const std::uint64_t seed : {1, 2}) {
      const std::vector<double> failures = draw_failures(seed);
      AdviceInput input;
      input.costs = scenario.costs;
      input.failures.mtbf_s = scenario.mtbf_s;
      const double best = advise(input).best.seconds;
      const double waste = simulate(scenario.costs, scenario.mtbf_s, best, failures);
      EXPECT_LT(waste, 1.10 * least_simulated(scenario, best, failures)) << scenario.name << ", seed " << seed;
    }
  }
}

// A job that learns its MTBF from its own first failures, as one that saves by advice does.
TEST(AdviceSimulation, AdviceFromTwentyFailuresIsNearTheOptimum) {
  for (const Scenario& scenario : kScenarios) {
    const std::vector<double> failures = draw_failures(11);
    constexpr std::size_t kSeen = 20;
    double hours = 0;
    for (std::size_t i = 0; i < kSeen; ++i) hours += failures[i] * scenario.mtbf_s / 3600;
    AdviceInput input;
    input.costs = scenario.costs;
    input.failures.observed = kSeen;
    input.failures.observed_hours = hours;
    const Advice advice = advise(input);
    EXPECT_LT(advice.mtbf_low_s, scenario.mtbf_s) << scenario.name;
    EXPECT_GT(advice.mtbf_high_s, scenario.mtbf_s) << scenario.name;
    const double waste = simulate(scenario.costs, scenario.mtbf_s, advice.best.seconds, failures);
    EXPECT_LT(waste, 1.10 * least_simulated(scenario, advice.best.seconds, failures)) << scenario.name;
  }
}

}  // namespace
}  // namespace cairn
