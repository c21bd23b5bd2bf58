// The decisions of a schedule: made-up ranks, clocks and signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "expect_error.hpp"
#include "life/schedule_rules.hpp"

namespace cairn::life {
namespace {

using test::expect_error;
using testing::HasSubstr;

/// Ranks that look at a schedule together; time passes as the test says.
class Ranks {
 public:
  explicit Ranks(int count, const ScheduleOptions& options = {}, std::optional<double> limit = std::nullopt) {
    for (int rank = 0; rank < count; ++rank) rules_.emplace_back(options, limit, times_of(rank));
    save_.resize(rules_.size());
    stop_.resize(rules_.size());
  }

  void signal_save(std::size_t rank, int signal) { save_[rank] = signal; }
  void signal_stop(std::size_t rank, int signal) { stop_[rank] = signal; }
  void pass(double seconds) { now_.steady += seconds, now_.wall += seconds; }
  void saved(double seconds, std::optional<double> stall = std::nullopt) {
    Report report;
    report.seconds = seconds;
    if (stall) report.stall.emplace().seconds = *stall;
    for (ScheduleRules& rules : rules_) rules.saved(report);
  }
  [[nodiscard]] std::optional<double> advised() const { return rules_[0].advised_seconds(); }

  /// All ranks' look; they must decide alike.
  Due look(std::uint64_t step) {
    std::vector<Due> dues;
    Asked most{};
    for (std::size_t rank = 0; rank < rules_.size(); ++rank) {
      dues.push_back(rules_[rank].decide(step, agreed_, times_of(static_cast<int>(rank))));
      const Asked mine = rules_[rank].ask(step, save_[rank], stop_[rank], times_of(static_cast<int>(rank)));
      for (std::size_t i = 0; i < mine.size(); ++i) most[i] = std::max(most[i], mine[i]);
      save_[rank] = 0;
    }
    agreed_.assign(most.begin(), most.end());
    for (const Due& due : dues) {
      EXPECT_EQ(due.save, dues[0].save);
      EXPECT_EQ(due.stop, dues[0].stop);
      EXPECT_EQ(due.why, dues[0].why);
    }
    EXPECT_EQ(dues[0].why.empty(), !dues[0].save);
    return dues[0];
  }

 private:
  [[nodiscard]] std::optional<Times> times_of(int rank) const { return rank == 0 ? std::optional(now_) : std::nullopt; }

  Times now_{50, 1'800'000'000};
  std::vector<ScheduleRules> rules_;
  std::vector<int> save_, stop_;
  std::vector<std::int64_t> agreed_;
};

FailureData with_mtbf(double seconds) {
  FailureData failures;
  failures.mtbf_s = seconds;
  return failures;
}

RunCosts costs_of(double stall, double background) {
  RunCosts costs;
  costs.stall_s = stall;
  costs.background_s = background;
  return costs;
}

TEST(ScheduleRules, MultiplesOfStepsAreDueAtOnce) {
  ScheduleOptions options;
  options.every_steps = 5;
  Ranks ranks(3, options);
  for (std::uint64_t step = 1; step <= 20; ++step) EXPECT_EQ(ranks.look(step).save, step % 5 == 0) << step;
  EXPECT_EQ(ranks.look(25).why, "step 25 is a multiple of 5");
}

TEST(ScheduleRules, NothingIsDueWithoutARule) {
  Ranks ranks(2);
  for (std::uint64_t step = 0; step < 50; ++step) {
    EXPECT_FALSE(ranks.look(step).save);
    ranks.pass(1e5);
  }
}

TEST(ScheduleRules, TimeIsCountedFromTheLastSaveThatWasDue) {
  ScheduleOptions options;
  options.every_seconds = 100;
  Ranks ranks(2, options);
  std::vector<std::uint64_t> saves;
  for (std::uint64_t step = 1; step <= 40; ++step) {
    ranks.pass(10);
    if (ranks.look(step).save) saves.push_back(step);
  }
  EXPECT_EQ(saves, (std::vector<std::uint64_t>{11, 22, 33})) << "asked at step 10, decided one look later";

  options.every_steps = 7;  // saves by steps start the time anew
  Ranks both(2, options);
  for (std::uint64_t step = 1; step <= 40; ++step) {
    both.pass(10);
    const Due due = both.look(step);
    EXPECT_EQ(due.save, step % 7 == 0) << step << due.why;
  }
}

TEST(ScheduleRules, ByAdviceTheFirstSaveMeasuresAndTheOthersFollow) {
  ScheduleOptions options;
  options.failures = with_mtbf(3600);
  Ranks ranks(2, options);
  ranks.pass(1);
  EXPECT_FALSE(ranks.look(1).save);
  EXPECT_TRUE(ranks.look(2).save) << "at the first look, known to all one look later";
  EXPECT_FALSE(ranks.look(3).save) << "before the save is over";
  EXPECT_EQ(ranks.advised(), 36);
  ranks.saved(50, 2);
  const double wanted = advise({costs_of(2, 48), *options.failures, 0}).best.seconds;
  EXPECT_EQ(ranks.advised(), wanted);
  EXPECT_GT(wanted, 100);
  double since = 0;
  std::uint64_t step = 4;
  while (!ranks.look(step++).save) {
    ranks.pass(1);
    ASSERT_LT(since += 1, 1000);
  }
  EXPECT_NEAR(since, wanted, 2.5);
  ranks.saved(20);  // a synchronous one: the mean of both
  EXPECT_NEAR(ranks.advised().value(), advise({costs_of(11, 24), *options.failures, 0}).best.seconds, 1e-6);

  options.costs.stall_s = 5;
  EXPECT_EQ(Ranks(1, options).advised(), advise({options.costs, *options.failures, 0}).best.seconds);
}

TEST(ScheduleRules, AdviceKeepsItsIntervalWhenAJobMakesNoProgress) {
  ScheduleOptions options;
  options.failures = with_mtbf(100);
  Ranks ranks(1, options);
  ranks.saved(2);
  const auto before = ranks.advised();
  ranks.saved(1e6);
  EXPECT_EQ(ranks.advised(), before);
}

TEST(ScheduleRules, ASignalToOneRankIsServedOnAllOnce) {
  Ranks ranks(4);
  ranks.look(1);
  ranks.signal_save(2, SIGUSR1);
  EXPECT_FALSE(ranks.look(2).save);
  const Due due = ranks.look(3);
  EXPECT_TRUE(due.save && !due.stop);
  EXPECT_EQ(due.why, "SIGUSR1");
  EXPECT_FALSE(ranks.look(4).save);
}

TEST(ScheduleRules, ASaveServesTheSignalsBeforeIt) {
  ScheduleOptions options;
  options.every_steps = 10;
  Ranks ranks(2, options);
  ranks.look(9);
  ranks.signal_save(1, SIGUSR1);
  EXPECT_TRUE(ranks.look(10).save);
  EXPECT_FALSE(ranks.look(11).save);
}

TEST(ScheduleRules, AStopStaysAndWinsOverASave) {
  ScheduleOptions options;
  options.every_steps = 2;
  Ranks ranks(3, options);
  ranks.look(1);
  ranks.signal_stop(2, SIGTERM);
  EXPECT_FALSE(ranks.look(2).stop);
  for (std::uint64_t step = 3; step < 6; ++step) {
    const Due due = ranks.look(step);
    EXPECT_TRUE(due.save && due.stop) << step;
    EXPECT_EQ(due.why, "SIGTERM");
  }
}

TEST(ScheduleRules, TheLastSaveIsCompleteBeforeTheTimeLimit) {
  ScheduleOptions options;
  options.limit_margin_s = 60;
  constexpr double kStep = 30, kSave = 100, kHour = 3600;
  Ranks ranks(2, options, 1'800'000'000 + kHour);
  ranks.saved(kSave);
  double time = 0;
  for (std::uint64_t step = 1;; ++step) {
    ranks.pass(kStep);
    time += kStep;
    const Due due = ranks.look(step);
    if (!due.stop) continue;
    EXPECT_TRUE(due.save);
    EXPECT_EQ(due.why, "the job's time limit, 2027-01-15 09:00:00 UTC, is near");
    break;
  }
  EXPECT_LE(time + kSave + options.limit_margin_s, kHour);
  EXPECT_GE(time + 2 * kSave + options.limit_margin_s + 3 * kStep, kHour) << "not much earlier than needed";
}

TEST(ScheduleRules, RanksThatLookAtDifferentStepsAreAnError) {
  ScheduleRules rules({}, std::nullopt, std::nullopt);
  Asked here = rules.ask(7, 0, 0, std::nullopt);
  const Asked there = rules.ask(8, 0, 0, std::nullopt);
  for (std::size_t i = 0; i < here.size(); ++i) here[i] = std::max(here[i], there[i]);
  expect_error(ErrorKind::kUsage, [&] { static_cast<void>(rules.decide(9, here, std::nullopt)); },
               {"different steps, 7 to 8", "look()"});
}

TEST(ScheduleRules, OptionsWithoutSenseAreRefused) {
  for (const double seconds : {-1.0, 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    ScheduleOptions options;
    options.every_seconds = seconds;
    expect_error(ErrorKind::kUsage, [&] { ScheduleRules(options, std::nullopt, std::nullopt); }, {"every_seconds"});
    options = {};
    options.limit_margin_s = seconds;
    expect_error(ErrorKind::kUsage, [&] { ScheduleRules(options, std::nullopt, std::nullopt); }, {"limit_margin_s"});
  }
}

TEST(ScheduleRules, FailuresWithoutSenseAreRefused) {
  ScheduleOptions options;
  options.failures = with_mtbf(-1);
  expect_error(ErrorKind::kUsage, [&] { ScheduleRules(options, std::nullopt, std::nullopt); }, {"the MTBF is -1"});
}

TEST(ScheduleRules, SignalsAreNamed) {
  EXPECT_EQ(name_of_signal(SIGTERM), "SIGTERM");
  EXPECT_EQ(name_of_signal(SIGUSR2), "SIGUSR2");
  EXPECT_EQ(name_of_signal(40), "signal 40");
}

}  // namespace
}  // namespace cairn::life
