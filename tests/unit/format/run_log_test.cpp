// cairn.log.jsonl: a golden file written without Cairn, lines that cannot be read, and aggregating, which keeps sums.
#include "format/run_log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <set>
#include <sstream>

#include "helpers.hpp"
#include "random.hpp"

namespace cairn::format::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kDayMs = 24 * 3600 * 1000;
const std::int64_t kStart = *parse_log_time("2026-11-25T00:00:00.000Z");

const auto no_step = [](std::uint64_t) { return false; };

LogCall saved(std::uint64_t step, std::int64_t time_ms = kStart) {
  LogCall call;
  call.time_ms = time_ms;
  call.what = kLogSave;
  call.step = step;
  call.outcome = kLogGood;
  call.seconds = 2;
  call.bytes = 1000;
  return call;
}

std::string text_of(const std::vector<LogCall>& calls) {
  std::string text;
  for (const LogCall& call : calls) text += encode_log_line(call) + "\n";
  return text;
}

/// Everything in the log, in one sum.
LogSum total(const std::string& text) {
  const RunLog log = parse_run_log(text);
  LogSum all;
  for (const LogSum& sum : log.sums) all.add(sum);
  for (const LogCall& call : log.calls) all.add(call);
  return all;
}

void expect_same_total(const std::string& a, const std::string& b) {
  const LogSum one = total(a);
  const LogSum other = total(b);
  EXPECT_EQ(one.outcomes, other.outcomes);
  EXPECT_EQ(one.lowest_step, other.lowest_step);
  EXPECT_EQ(one.highest_step, other.highest_step);
  EXPECT_EQ(one.programs, other.programs);
  EXPECT_EQ(one.skipped, other.skipped);
  EXPECT_EQ(one.faults, other.faults);
  EXPECT_EQ(one.first_ms, other.first_ms);
  EXPECT_EQ(one.last_ms, other.last_ms);
  ASSERT_EQ(one.measures.size(), other.measures.size());
  for (const auto& [key, measure] : one.measures) {
    SCOPED_TRACE(key);
    const LogMeasure& same = other.measures.at(key);
    EXPECT_EQ(measure.count, same.count);
    EXPECT_NEAR(measure.sum, same.sum, 1e-6 * (1 + measure.sum));
    EXPECT_NEAR(measure.min, same.min, 1e-6);
    EXPECT_NEAR(measure.max, same.max, 1e-6);
  }
}

TEST(RunLog, CountsProgramsAndTheirWork) {
  LogCall first = saved(1);
  first.is_first = true;
  first.work_seconds = 7.5;
  LogCall second = saved(2);
  second.work_seconds = 30;
  const std::string text = text_of({first, second});
  const RunLog log = parse_run_log(text);
  ASSERT_EQ(log.calls.size(), 2U);
  EXPECT_TRUE(log.calls[0].is_first);
  EXPECT_EQ(log.calls[0].work_seconds, 7.5);
  EXPECT_FALSE(log.calls[1].is_first);
  const std::string less = aggregate_run_log(text, no_step, {.newest_bytes = 0, .marked_bytes = 0});
  const RunLog sums = parse_run_log(less);
  ASSERT_EQ(sums.sums.size(), 1U);
  EXPECT_EQ(sums.sums[0].programs, 1U);
  EXPECT_EQ(sums.sums[0].measures.at("work_seconds").sum, 37.5);
  expect_same_total(text, less);
}

TEST(RunLog, IsTheGoldenFile) {
  const std::string golden = read_file(test_data("golden/cairn.log.jsonl"));
  const RunLog log = parse_run_log(golden);
  EXPECT_EQ(log.damaged, 1U) << "the torn line";
  EXPECT_EQ(log.newer, 0U);
  ASSERT_EQ(log.sums.size(), 1U);
  ASSERT_EQ(log.calls.size(), 4U);
  std::string text = encode_log_line(log.sums[0]) + "\n" + text_of(log.calls);
  EXPECT_EQ(text, golden.substr(0, golden.rfind('\n') + 1));

  const LogCall& save = log.calls[0];
  EXPECT_EQ(log_time(save.time_ms), "2026-11-27T20:15:55.123Z");
  EXPECT_EQ(save.step, 1000U);
  EXPECT_EQ(save.seconds, 3.75);
  EXPECT_TRUE(save.is_async);
  EXPECT_EQ(save.stall_seconds, 0.5);
  EXPECT_EQ(save.wait_seconds, 0.25);
  EXPECT_EQ(save.background_seconds, 3.25);
  EXPECT_THAT(save.phases, ElementsAre(std::pair("plan", 0.125), std::pair("write", 2.5), std::pair("commit", 0.0625)));
  EXPECT_EQ(save.bytes, 1099511627776U);
  EXPECT_EQ(save.files, 220U);
  EXPECT_EQ(save.ranks, 64U);
  EXPECT_EQ(save.nodes, 8U);
  EXPECT_EQ(save.engine, "direct");
  EXPECT_EQ(save.codecs.at("optimizer"), "q8");
  EXPECT_EQ(save.ratio, 1.84);
  EXPECT_EQ(save.run_id, "llama-8b");
  EXPECT_EQ(save.tool, "cairn 0.1.0");
  EXPECT_EQ(log.calls[1].outcome, kLogFailed);
  EXPECT_EQ(log.calls[1].error_kind, "io");
  EXPECT_THAT(log.calls[1].error, HasSubstr("No space left"));
  EXPECT_FALSE(log.calls[1].is_async);
  EXPECT_THAT(log.calls[2].skipped, ElementsAre(1400, 1200));
  EXPECT_EQ(log.calls[3].faults, 2U);
  EXPECT_EQ(log.sums[0].what, kLogSave);
  EXPECT_EQ(log.sums[0].calls(), 96U);
  EXPECT_EQ(log.sums[0].measures.at("seconds").max, 4.25);
}

TEST(RunLog, TimesAreUtc) {
  EXPECT_EQ(log_time(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(log_time(-1), "1969-12-31T23:59:59.999Z");
  EXPECT_EQ(parse_log_time("2024-02-29T12:00:00.500Z"), 1709208000500);
  for (const char* text : {"2023-02-29T12:00:00.500Z", "2024-02-29T24:00:00.500Z", "2024-02-29 12:00:00.500Z", "",
                           "2024-02-29T12:00:00.500", "2024-2-29T12:00:00.5000Z"}) {
    EXPECT_EQ(parse_log_time(text), std::nullopt) << text;
  }
}

TEST(RunLog, CutsLongTextsAndEscapesWhatAFileMayHold) {
  LogCall call = saved(1);
  call.outcome = kLogFailed;
  call.error_kind = "io";
  call.error = std::string(100'000, 'x') + "\n\x1b[2J\xff";
  call.skipped.assign(1000, 7);
  for (int i = 0; i < 1000; ++i) {
    call.codecs["section" + std::to_string(i)] = "q8";
    call.phases.emplace_back("phase" + std::to_string(i), 1);
  }
  const std::string line = encode_log_line(call);
  EXPECT_LT(line.size(), 2000U);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  call.error = "two\nlines \x1b[2J \xff";
  const RunLog log = parse_run_log(encode_log_line(call));
  ASSERT_EQ(log.calls.size(), 1U);
  EXPECT_EQ(log.calls[0].error.find('\n'), std::string::npos);
}

TEST(RunLog, PassesOverWhatItCannotRead) {
  const std::string good = encode_log_line(saved(1));
  const std::vector<std::string> bad = {"x",
                                        "{}",
                                        "[]",
                                        "null",
                                        "{\"version\":1}",
                                        "{\"version\":0,\"what\":\"save\"}",
                                        "{\"version\":1,\"what\":\"save\",\"time\":\"today\"}",
                                        std::string(3, '\0'),
                                        good.substr(0, good.size() / 2),
                                        good + good,
                                        "\xff\xfe"};
  std::string text = "\n\n";
  for (const std::string& line : bad) text += line + "\n" + good + "\n";
  text += "{\"version\":2,\"what\":7}\n";
  const RunLog log = parse_run_log(text);
  EXPECT_EQ(log.calls.size(), bad.size());
  EXPECT_EQ(log.damaged, bad.size());
  EXPECT_EQ(log.newer, 1U);
  // Keys of another type count as missing.
  const RunLog odd = parse_run_log(R"({"version":1,"time":"2026-11-27T20:15:55.123Z","what":"save","step":-1,)"
                                   R"("seconds":"x","phases":[],"bytes":1.5,"error":3,"skipped":{},"codecs":[]})");
  ASSERT_EQ(odd.calls.size(), 1U);
  EXPECT_EQ(odd.calls[0].step, std::nullopt);
}

TEST(RunLog, EveryPrefixIsReadAsFarAsItIsWhole) {
  const std::string text = text_of({saved(1), saved(2), saved(3)});
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const RunLog log = parse_run_log(std::string_view(text).substr(0, cut));
    const auto lines = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(cut), '\n');
    const bool is_whole = cut < text.size() && text[cut] == '\n';
    EXPECT_EQ(log.calls.size(), static_cast<std::size_t>(lines) + (is_whole ? 1 : 0)) << cut;
  }
}

TEST(RunLog, TellsTheLastSaveAndVerificationOfAStep) {
  LogCall failed = saved(1);
  failed.outcome = kLogFailed;
  LogCall verified = saved(1);
  verified.what = kLogVerify;
  LogCall again = saved(1);
  again.seconds = 5;
  auto steps = log_by_step(parse_run_log(text_of({saved(1), verified, failed, saved(2)})));
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps.at(1).saved->seconds, 2);
  EXPECT_TRUE(steps.at(1).verified);
  EXPECT_FALSE(steps.at(2).verified);
  steps = log_by_step(parse_run_log(text_of({saved(1), verified, again})));
  EXPECT_EQ(steps.at(1).saved->seconds, 5);
  EXPECT_FALSE(steps.at(1).verified) << "another checkpoint was verified";
}

TEST(RunLog, TellsRepairsPruningsAndWhereAScrubEnded) {
  LogCall scrub = saved(1);
  scrub.what = kLogScrub;
  scrub.position_bytes = 4096;
  scrub.manifest = "0a1b2c3d";
  LogCall repair = saved(1);
  repair.what = kLogRepair;
  LogCall prune = saved(1);
  prune.what = kLogPrune;
  prune.step.reset();
  prune.pruned = {3, 4};
  const RunLog log = parse_run_log(text_of({saved(1), scrub, prune}));
  EXPECT_THAT(log.calls.at(2).pruned, ElementsAre(3, 4));
  auto steps = log_by_step(log);
  ASSERT_EQ(steps.size(), 1U);
  ASSERT_TRUE(steps.at(1).scrubbed);
  EXPECT_FALSE(steps.at(1).verified);
  EXPECT_EQ(steps.at(1).scrubbed->position_bytes, 4096U);
  EXPECT_EQ(steps.at(1).scrubbed->manifest, "0a1b2c3d");
  steps = log_by_step(parse_run_log(text_of({saved(1), scrub, repair})));
  EXPECT_TRUE(steps.at(1).verified) << "a repair reads everything";
  EXPECT_FALSE(steps.at(1).scrubbed);
  steps = log_by_step(parse_run_log(text_of({saved(1), scrub, saved(1)})));
  EXPECT_FALSE(steps.at(1).scrubbed) << "another checkpoint was scrubbed";
  prune.pruned.assign(100'000, 7);
  EXPECT_LT(encode_log_line(prune).size(), 2000U);
}

TEST(RunLogAggregation, SumsCallsByDay) {
  std::vector<LogCall> calls;
  for (int day = 0; day < 3; ++day) {
    for (std::uint64_t i = 0; i < 10; ++i) calls.push_back(saved(i + 1, kStart + day * kDayMs + 1000));
  }
  calls[3].outcome = kLogFailed;
  calls[25].outcome = kLogRefused;
  const std::string text = text_of(calls);
  const std::string smaller = aggregate_run_log(text, no_step, {.newest_bytes = 0});
  const RunLog log = parse_run_log(smaller);
  EXPECT_TRUE(log.calls.empty());
  ASSERT_EQ(log.sums.size(), 3U);
  EXPECT_EQ(log.sums[0].outcomes.at(kLogFailed), 1U);
  EXPECT_EQ(log.sums[0].outcomes.at(kLogGood), 9U);
  EXPECT_EQ(log.sums[0].measures.at("bytes").sum, 9000);
  EXPECT_EQ(log.sums[1].calls(), 10U);
  EXPECT_EQ(log.sums[2].highest_step, 10U);
  expect_same_total(text, smaller);
  EXPECT_EQ(aggregate_run_log(smaller, no_step, {.newest_bytes = 0}), smaller);
}

TEST(RunLogAggregation, KeepsTheNewestAndTheFactsOfStepsThatAreThere) {
  std::vector<LogCall> calls;
  for (std::uint64_t step = 1; step <= 1000; ++step) calls.push_back(saved(step, kStart + static_cast<int>(step)));
  LogCall verified = saved(7);
  verified.what = kLogVerify;
  calls.insert(calls.begin() + 20, verified);
  const std::string text = text_of(calls);
  const std::string smaller =
      aggregate_run_log(text, [](std::uint64_t step) { return step == 5 || step == 7; }, {.newest_bytes = 20'000});
  const RunLog log = parse_run_log(smaller);
  const auto steps = log_by_step(log);
  EXPECT_TRUE(steps.at(5).saved);
  EXPECT_TRUE(steps.at(7).saved && steps.at(7).verified);
  EXPECT_FALSE(steps.contains(6));
  EXPECT_TRUE(steps.contains(1000) && steps.contains(950));
  EXPECT_LT(smaller.size(), 22'000U);
  expect_same_total(text, smaller);
}

TEST(RunLogAggregation, KeepsLinesOfANewerVersionAndDropsTornOnes) {
  const std::string newer = "{\"version\":9,\"what\":\"unheard of\"}\n";
  const std::string smaller = aggregate_run_log(newer + "torn\n" + text_of({saved(1)}), no_step, {.newest_bytes = 0});
  EXPECT_THAT(smaller, HasSubstr(newer));
  EXPECT_THAT(smaller, Not(HasSubstr("torn")));
}

TEST(RunLogAggregation, HasAtMostSoManySums) {
  std::vector<LogCall> calls;
  for (int day = 0; day < 3000; ++day) calls.push_back(saved(static_cast<std::uint64_t>(day), kStart + day * kDayMs));
  const std::string text = text_of(calls);
  const std::string smaller = aggregate_run_log(text, no_step, {.newest_bytes = 0, .sums = 100});
  const RunLog log = parse_run_log(smaller);
  EXPECT_LE(log.sums.size(), 100U);
  EXPECT_GT(log.sums.size(), 50U);
  EXPECT_EQ(log.sums.back().calls(), 1U) << "the newest days stay apart";
  EXPECT_TRUE(std::ranges::is_sorted(log.sums, {}, &LogSum::first_ms));
  expect_same_total(text, smaller);
}

// A log that grows and is made smaller again and again: its size has a limit, and no call is lost in its sums.
TEST(RunLogAggregation, KeepsAllSumsInRandomHistories) {
  std::mt19937_64 random = cairn::test::make_random();
  const auto draw = [&](std::uint64_t most) { return random() % (most + 1); };
  constexpr LogBound kBound{.newest_bytes = 4000, .marked_bytes = 2000, .sums = 12};
  for (int history = 0; history < 20; ++history) {
    std::string all;
    std::string log;
    std::int64_t now = kStart;
    std::set<std::uint64_t> there;
    for (std::uint64_t step = 1; step <= 400; ++step) {
      LogCall call = saved(step);
      now += static_cast<std::int64_t>(draw(2 * static_cast<std::uint64_t>(kDayMs)));
      call.time_ms = now;
      call.what = draw(3) == 0 ? (draw(1) == 0 ? kLogLoad : kLogVerify) : kLogSave;
      call.outcome = draw(4) == 0 ? kLogFailed : kLogGood;
      call.seconds = static_cast<double>(draw(1'000'000)) / 1e3;
      call.bytes = draw(1'000'000);
      call.is_async = draw(1) == 0;
      call.stall_seconds = static_cast<double>(draw(1000)) / 1e3;
      call.run_id = draw(9) == 0 ? "other" : "run";
      call.skipped.assign(draw(2), 1);
      call.faults = draw(2);
      if (draw(3) == 0) there.insert(step);
      if (draw(9) == 0) there.clear();
      const std::string line = encode_log_line(call) + "\n";
      all += line;
      log += line;
      if (log.size() < 16'000) continue;
      log = aggregate_run_log(
          log, [&](std::uint64_t at) { return there.contains(at); }, kBound);
      EXPECT_LT(log.size(), kBound.newest_bytes + kBound.marked_bytes + kBound.sums * 700);
      expect_same_total(all, log);
    }
  }
}

}  // namespace
}  // namespace cairn::format::testing
