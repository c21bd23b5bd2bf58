// The decision which checkpoints go: each rule in a table, and random entries under random rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cairn/error.hpp"
#include "expect_error.hpp"
#include "random.hpp"
#include "root/retention.hpp"

namespace cairn::test {
namespace {

using root::Fitness;
using root::RetentionEntry;
using root::Verdict;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kHourS = 3600;
constexpr std::int64_t kDayS = 24 * kHourS;
constexpr std::int64_t kNowS = 20'000 * kDayS + 12 * kHourS + 60;  // a minute after noon

RetentionEntry good(std::uint64_t step, std::int64_t age_s = 0, std::map<std::string, double> metrics = {}) {
  return {step, kNowS - age_s, std::move(metrics)};
}
RetentionEntry other(std::uint64_t step, Fitness fitness, const std::string& problem) {
  return {step, kNowS, {}, fitness, problem};
}

/// Steps that stay.
std::vector<std::uint64_t> left(const std::vector<RetentionEntry>& entries, const Retention& retention) {
  std::vector<std::uint64_t> steps;
  const auto verdicts = root::decide(entries, retention, kNowS);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!verdicts[i].goes) steps.push_back(entries[i].step);
  }
  return steps;
}

TEST(Retention, RemovesNothingWithoutARule) {
  const std::vector<RetentionEntry> entries = {good(3), good(2), other(1, Fitness::kVoid, "void"),
                                               other(0, Fitness::kDamaged, "cut")};
  EXPECT_TRUE(Retention{}.empty());
  EXPECT_THAT(left(entries, {}), ElementsAre(3, 2, 1, 0));
  EXPECT_THAT(left({}, {.keep_last = 1}), ElementsAre());
}

TEST(Retention, KeepsTheLast) {
  const std::vector<RetentionEntry> entries = {good(400), good(300), other(250, Fitness::kVoid, "void"), good(200),
                                               good(100)};
  EXPECT_THAT(left(entries, {.keep_last = 1}), ElementsAre(400));
  EXPECT_THAT(left(entries, {.keep_last = 3}), ElementsAre(400, 300, 200));
  EXPECT_THAT(left(entries, {.keep_last = 9}), ElementsAre(400, 300, 200, 100));
}

TEST(Retention, KeepsMilestonesAndTheNewest) {
  const std::vector<RetentionEntry> entries = {good(2500), good(2000), good(1500), good(1000), good(500), good(0)};
  EXPECT_THAT(left(entries, {.keep_every = 1000}), ElementsAre(2500, 2000, 1000, 0));
  EXPECT_THAT(left(entries, {.keep_steps = {500, 77}}), ElementsAre(2500, 500));
  EXPECT_THAT(left(entries, {.keep_last = 2, .keep_every = 1000, .keep_steps = {1500}}),
              ElementsAre(2500, 2000, 1500, 1000, 0));
}

TEST(Retention, CountsPartsApart) {
  const auto part = [](std::uint64_t step, const std::string& what) {
    RetentionEntry entry = good(step);
    entry.part = what;
    return entry;
  };
  const std::vector<RetentionEntry> entries = {good(300),      good(200),      good(100),      part(390, "a"),
                                               part(290, "a"), part(190, "a"), part(380, "b"), part(280, "b")};
  EXPECT_THAT(left(entries, {.keep_last = 2}), ElementsAre(300, 200, 390, 290, 380, 280));
  EXPECT_THAT(left(entries, {.keep_last = 1}), ElementsAre(300, 390, 380));
  EXPECT_THAT(left(entries, {.keep_steps = {100}}), ElementsAre(300, 100, 390, 380));
  EXPECT_EQ(root::decide(entries, {.keep_last = 1}, kNowS)[3].why, "newest with a, last 1");
  // The newest whole state is damaged, and what is void stands for it; parts do neither.
  const std::vector<RetentionEntry> without = {other(9, Fitness::kDamaged, "cut"), other(5, Fitness::kVoid, "void"),
                                               part(10, "a"), part(8, "a")};
  EXPECT_THAT(left(without, {.keep_last = 1}), ElementsAre(9, 5, 10));
  EXPECT_THAT(left({part(3, "a"), part(2, "a"), part(1, "a")}, {.keep_last = 2}), ElementsAre(3, 2));
}

TEST(Retention, KeepsTheBest) {
  const std::vector<RetentionEntry> entries = {good(6, 0, {{"loss", 4}}),  good(5, 0, {{"loss", 2}, {"acc", 0.1}}),
                                               good(4, 0, {{"acc", 0.9}}), good(3, 0, {{"loss", 2}}),
                                               good(2, 0, {{"loss", 3}}),  good(1, 0, {{"loss", -1}})};
  EXPECT_THAT(left(entries, {.keep_best = {{"loss", Best::kMin, 2}}}), ElementsAre(6, 5, 1));
  EXPECT_THAT(left(entries, {.keep_best = {{"loss", Best::kMin, 3}}}), ElementsAre(6, 5, 3, 1));
  EXPECT_THAT(left(entries, {.keep_best = {{"acc", Best::kMax}, {"loss", Best::kMax}}}), ElementsAre(6, 4));
  EXPECT_THAT(left(entries, {.keep_best = {{"perplexity"}}}), ElementsAre(6));
}

TEST(Retention, KeepsOneOfEveryHourAndDay) {
  const std::vector<RetentionEntry> entries = {good(9, 30),           // 12:00:30
                                               good(8, 90),           // 11:59:30: the last of its hour
                                               good(7, 30 * 60),      // 11:31
                                               good(6, 2 * kHourS),   // 10:01
                                               good(5, 13 * kHourS),  // 23:01 the day before: the last of its day, too
                                               good(4, 13 * kHourS + 9),  // 23:00:51
                                               good(3, 25 * kHourS),      // 11:01 the day before: more than a day ago
                                               good(2, 5 * kDayS),        // the last of its day
                                               good(1, 5 * kDayS + 1)};
  EXPECT_THAT(left(entries, {.keep_by_age = true}), ElementsAre(9, 8, 6, 5, 2));
}

// Rules by the age itself would let go, one after the other, all that an hour had.
TEST(Retention, KeepsByAgeTheSameLater) {
  std::vector<RetentionEntry> entries;
  for (std::int64_t minute = 0; minute < 3 * 24 * 60; minute += 25) {
    entries.insert(entries.begin(), {static_cast<std::uint64_t>(minute), kNowS + 60 * minute});
    const auto verdicts = root::decide(entries, {.keep_by_age = true}, entries.front().saved_s);
    for (std::size_t i = entries.size(); i-- > 0;) {
      if (verdicts[i].goes) entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  EXPECT_GE(entries.size(), 24u + 2u);
  EXPECT_LE(entries.size(), 26u + 3u);
}

TEST(Retention, LeavesWhatMayBeNewerAndWhatIsOfOthers) {
  std::vector<RetentionEntry> entries = {other(9, Fitness::kDamaged, "cut"),
                                         good(8),
                                         other(7, Fitness::kDamaged, "cut"),
                                         other(6, Fitness::kForeign, "another program's"),
                                         other(5, Fitness::kPartial, "not committed"),
                                         other(4, Fitness::kVoid, "left"),
                                         good(3)};
  entries.back().held = "being loaded";
  entries.push_back(good(2));
  entries.back().is_pinned = true;
  entries.push_back(other(1, Fitness::kDamaged, "cut"));
  entries.back().is_pinned = true;
  EXPECT_THAT(left(entries, {.keep_last = 1}), ElementsAre(9, 8, 6, 5, 3, 2, 1));
  const auto verdicts = root::decide(entries, {.keep_last = 1}, kNowS);
  EXPECT_THAT(root::removal_order(entries, verdicts), ElementsAre(5, 2));
  EXPECT_EQ(verdicts[1].why, "newest, last 1");
  EXPECT_EQ(verdicts[2].why, "cut");
  EXPECT_EQ(verdicts[6].why, "being loaded");
  EXPECT_THAT(verdicts[0].why, HasSubstr("may be newer"));
}

TEST(Retention, KeepsAVoidOneWhereNothingElseIsWhole) {
  const std::vector<RetentionEntry> entries = {other(3, Fitness::kDamaged, "cut"), other(2, Fitness::kVoid, "left"),
                                               other(1, Fitness::kVoid, "left")};
  EXPECT_THAT(left(entries, {.keep_last = 1}), ElementsAre(3, 2));
  EXPECT_THAT(left({other(3, Fitness::kDamaged, "cut")}, {.keep_last = 1}), ElementsAre(3));
}

TEST(Retention, RefusesALimitOfZero) {
  const auto refused = [](const Retention& retention, std::string_view part) {
    expect_error(ErrorKind::kUsage, [&] { root::check_retention(retention); }, {part});
  };
  refused({.keep_last = 0}, "keep_last");
  refused({.keep_every = 0}, "keep_every");
  refused({.keep_best = {{"loss", Best::kMin, 0}}}, "'loss'");
  refused({.keep_best = {{""}}}, "no metric");
  refused({.keep_best = {{"loss"}, {"loss", Best::kMin, 2}}}, "two rules");
  root::check_retention({.keep_best = {{"loss"}, {"loss", Best::kMax}}});
}

class RandomRoot {
 public:
  explicit RandomRoot(std::uint64_t number) : random_(make_random(number)) {}

  std::uint64_t draw(std::uint64_t low, std::uint64_t high) { return uniform(random_, low, high); }

  std::vector<RetentionEntry> entries() {
    std::vector<RetentionEntry> all(draw(0, 30));
    for (RetentionEntry& entry : all) {
      entry.step = draw(0, 40) * 100;
      entry.saved_s = kNowS - static_cast<std::int64_t>(draw(0, 4 * kDayS)) + kHourS;
      if (draw(0, 3) != 0) entry.metrics["loss"] = static_cast<double>(draw(0, 9));
      entry.fitness = draw(0, 2) == 0 ? static_cast<Fitness>(draw(0, 4)) : Fitness::kGood;
      entry.problem = entry.fitness == Fitness::kGood ? "" : "a problem";
      entry.is_pinned = draw(0, 9) == 0;
      if (draw(0, 9) == 0) entry.held = "held";
    }
    return all;
  }

  Retention retention() {
    Retention rules;
    if (draw(0, 2) == 0) rules.keep_last = draw(1, 5);
    if (draw(0, 2) == 0) rules.keep_every = draw(1, 5) * 100;
    if (draw(0, 2) == 0) rules.keep_steps = {draw(0, 40) * 100, draw(0, 40) * 100};
    if (draw(0, 2) == 0) rules.keep_best = {{"loss", draw(0, 1) == 0 ? Best::kMin : Best::kMax, draw(1, 4)}};
    rules.keep_by_age = draw(0, 3) == 0;
    return rules;
  }

 private:
  std::mt19937_64 random_;
};

/// Whether a rule keeps the good entry, by counting the others that come before it.
bool is_kept(const std::vector<RetentionEntry>& entries, std::size_t at, const Retention& rules) {
  const RetentionEntry& entry = entries[at];
  const auto before = [&](auto is_before) {
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i != at && entries[i].fitness == Fitness::kGood && is_before(entries[i], i < at)) ++count;
    }
    return count;
  };
  if (rules.keep_last && before([](const auto&, bool is_first) { return is_first; }) < *rules.keep_last) return true;
  if (rules.keep_every && entry.step % *rules.keep_every == 0) return true;
  if (std::ranges::count(rules.keep_steps, entry.step) != 0) return true;
  for (const BestBy& rule : rules.keep_best) {
    if (!entry.metrics.contains(rule.metric)) continue;
    const double own = entry.metrics.at(rule.metric);
    const std::uint64_t better = before([&](const RetentionEntry& one, bool is_first) {
      if (!one.metrics.contains(rule.metric)) return false;
      const double value = one.metrics.at(rule.metric);
      return (rule.best == Best::kMin ? value < own : value > own) || (value == own && is_first);
    });
    if (better < rule.keep) return true;
  }
  if (!rules.keep_by_age) return false;
  const auto is_last_of = [&](std::int64_t unit_s, std::int64_t after_s) {
    return before([&](const RetentionEntry& one, bool is_first) {
             if (one.saved_s / unit_s != entry.saved_s / unit_s || one.saved_s <= after_s) return false;
             return one.saved_s > entry.saved_s || (one.saved_s == entry.saved_s && is_first);
           }) == 0;
  };
  return is_last_of(kDayS, 0) || (entry.saved_s > kNowS - kDayS && is_last_of(kHourS, kNowS - kDayS));
}

TEST(Retention, HoldsForRandomRootsAndRules) {
  std::uint64_t gone = 0;
  for (std::uint64_t round = 0; round < 3000 && !HasFailure(); ++round) {
    SCOPED_TRACE("root " + std::to_string(round));
    RandomRoot random(round);
    const auto entries = random.entries();
    const Retention rules = random.retention();
    const auto verdicts = root::decide(entries, rules, kNowS);
    ASSERT_EQ(verdicts.size(), entries.size());
    std::size_t newest = entries.size();
    for (const Fitness fitness : {Fitness::kVoid, Fitness::kGood}) {
      const auto found = std::ranges::find(entries, fitness, &RetentionEntry::fitness);
      if (found != entries.end()) newest = static_cast<std::size_t>(found - entries.begin());
    }
    std::vector<RetentionEntry> rest;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const RetentionEntry& entry = entries[i];
      SCOPED_TRACE("entry " + std::to_string(i));
      const bool is_untouched = entry.is_pinned || !entry.held.empty() || i <= newest ||
                                entry.fitness == Fitness::kPartial || entry.fitness == Fitness::kForeign;
      const bool stays =
          rules.empty() || is_untouched || (entry.fitness == Fitness::kGood && is_kept(entries, i, rules));
      EXPECT_EQ(verdicts[i].goes, !stays) << verdicts[i].why;
      EXPECT_FALSE(verdicts[i].why.empty());
      gone += verdicts[i].goes ? 1 : 0;
      if (!verdicts[i].goes) rest.push_back(entry);
    }
    for (const Verdict& again : root::decide(rest, rules, kNowS)) EXPECT_FALSE(again.goes) << again.why;
    const auto order = root::removal_order(entries, verdicts);
    EXPECT_EQ(order.size(), entries.size() - rest.size());
    const auto is_bad = [&](std::size_t i) { return entries[i].fitness != Fitness::kGood; };
    EXPECT_TRUE(std::ranges::is_partitioned(order, is_bad));
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), order.size());
  }
  EXPECT_GT(gone, 3000u);
}

}  // namespace
}  // namespace cairn::test
