// The past of a run, from logs that the test writes.
#include "cairn/history.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "cairn/error.hpp"
#include "environment.hpp"
#include "expect_error.hpp"
#include "format/run_log.hpp"
#include "temp_dir.hpp"

namespace cairn::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kRun = "llama";

format::LogCall call(const char* what, std::int64_t time_ms) {
  format::LogCall call;
  call.what = what;
  call.outcome = format::kLogGood;
  call.time_ms = time_ms;
  call.run_id = kRun;
  call.step = 1;
  return call;
}

format::LogCall async_save(double stall, double background, double work, bool is_first = false) {
  format::LogCall save = call(format::kLogSave, 1'000'000);
  save.is_async = true;
  save.stall_seconds = stall;
  save.background_seconds = background;
  save.seconds = stall + background;
  save.work_seconds = work;
  save.is_first = is_first;
  return save;
}

class History : public testing::Test {
 protected:
  void add(const format::LogCall& call) { text_ += format::encode_log_line(call) + "\n"; }
  RunHistory read() {
    write_file(root_.path() / format::kRunLogFile, text_);
    return history_of(root_.path());
  }
  void aggregate() {
    text_ =
        format::aggregate_run_log(text_, [](std::uint64_t) { return false; }, {.newest_bytes = 0, .marked_bytes = 0});
  }

  TempDir root_;
  std::string text_;
};

TEST_F(History, OfNothingIsEmpty) {
  const RunHistory history = history_of(root_.path());
  EXPECT_EQ(history.saves, 0U);
  EXPECT_EQ(history.stall_s.calls, 0U);
  EXPECT_FALSE(history.advice_input().failures.observed);
  EXPECT_THAT(history.notes, IsEmpty());
  expect_error(ErrorKind::kNotFound, [&] { static_cast<void>(history_of(root_.path() / "absent")); },
               {"does not exist"});
}

// Two programs: the second one begins with a load; a save of it fails.
TEST_F(History, CountsRestartsAndTakesMedians) {
  add(async_save(1, 10, 600, true));
  for (const double stall : {2.0, 3.0, 100.0}) add(async_save(stall, 20, 1200));
  format::LogCall load = call(format::kLogLoad, 1);
  load.seconds = 30;
  add(load);
  add(async_save(4, 30, 100, true));
  format::LogCall failed = call(format::kLogSave, 1);
  failed.outcome = format::kLogFailed;
  failed.run_id.clear();
  add(failed);
  format::LogCall other = async_save(1000, 1000, 1e6, true);
  other.run_id = "other";
  text_ = format::encode_log_line(other) + "\n" + text_;

  const RunHistory history = read();
  EXPECT_EQ(history.run_id, kRun);
  EXPECT_EQ(history.saves, 5U);
  EXPECT_EQ(history.loads, 1U);
  EXPECT_EQ(history.bad, 1U);
  EXPECT_EQ(history.programs, 2U);
  EXPECT_EQ(history.stall_s.median, 3);
  EXPECT_EQ(history.background_s.median, 20);
  EXPECT_EQ(history.load_s.median, 30);
  EXPECT_EQ(history.interval_s.calls, 3U) << "without the first save of each program";
  EXPECT_EQ(history.interval_s.median, 1200);
  EXPECT_DOUBLE_EQ(history.up_s, 600 + 3 * 1200 + 100 + 1 + 2 + 3 + 100 + 4);
  EXPECT_THAT(history.notes, ElementsAre(HasSubstr("each of 1 restart counts as a failure")));
  const AdviceInput input = history.advice_input();
  EXPECT_EQ(input.costs.stall_s, 3);
  EXPECT_EQ(input.failures.observed, 1U);
  EXPECT_DOUBLE_EQ(input.failures.observed_hours.value_or(0), history.up_s / 3600);
}

TEST_F(History, IsTheSameFromSums) {
  add(async_save(1, 10, 600, true));
  add(async_save(3, 30, 800));
  add(async_save(5, 50, 1000, true));
  const RunHistory before = read();
  aggregate();
  const RunHistory after = read();
  EXPECT_EQ(after.run_id, kRun);
  EXPECT_EQ(after.saves, before.saves);
  EXPECT_EQ(after.programs, before.programs);
  EXPECT_DOUBLE_EQ(after.up_s, before.up_s);
  EXPECT_EQ(after.stall_s.median, 3) << "the mean";
  EXPECT_EQ(after.background_s.median, 30);
  EXPECT_EQ(after.interval_s.median, 800) << "the mean, with the first ones";
}

TEST_F(History, TakesTheWholeOfASynchronousSaveAsStall) {
  format::LogCall save = call(format::kLogSave, 1);
  save.seconds = 12;
  save.work_seconds = 88;
  add(save);
  const RunHistory history = read();
  EXPECT_EQ(history.stall_s.median, 12);
  EXPECT_EQ(history.background_s.calls, 0U);
  EXPECT_EQ(history.up_s, 100);
  EXPECT_FALSE(history.advice_input().failures.observed) << "one save says nothing about failures";
  EXPECT_THAT(history.notes, ElementsAre(HasSubstr("no load")));
}

TEST_F(History, SkipsLinesThatItCannotRead) {
  text_ = "{\"version\":1,\"time\":\"20\n\n{}\nnot a line\n";
  add(async_save(1, 10, 600, true));
  EXPECT_EQ(read().saves, 1U);
}

}  // namespace
}  // namespace cairn::test
