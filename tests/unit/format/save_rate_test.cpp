// The rate of saves: the median of the last good ones, as a log tells them.
#include "format/save_rate.hpp"

#include <gtest/gtest.h>

namespace cairn::format::testing {
namespace {

LogCall call(const char* what, const char* outcome, std::uint64_t step, std::uint64_t bytes, double seconds) {
  LogCall made;
  made.what = what;
  made.outcome = outcome;
  made.step = step;
  made.bytes = bytes;
  made.seconds = seconds;
  return made;
}

TEST(SaveRates, AreUnknownWithoutAGoodSave) {
  RunLog log;
  log.calls = {call(kLogLoad, kLogGood, 1, 100, 1), call(kLogSave, kLogFailed, 2, 100, 1)};
  const SaveRates rates(log);
  EXPECT_EQ(rates.saves(), 0U);
  EXPECT_FALSE(rates.median());
  EXPECT_EQ(rates.seconds_for(1000), 0);
  EXPECT_FALSE(last_save(log));
}

TEST(SaveRates, AreTheMedianOfTheLastFive) {
  RunLog log;
  for (std::uint64_t i = 1; i <= 7; ++i) log.calls.push_back(call(kLogSave, kLogGood, i, 100 * i, 1));
  log.calls.push_back(call(kLogSave, kLogRefused, 8, 0, 1));
  SaveRates rates(log);
  EXPECT_EQ(rates.saves(), 5U);
  EXPECT_DOUBLE_EQ(rates.median().value(), 500);  // of 300 to 700
  EXPECT_DOUBLE_EQ(rates.seconds_for(1000), 2);
  EXPECT_EQ(last_save(log).value().step, 7U);
  rates.add(1, 1000);  // one very slow save
  EXPECT_DOUBLE_EQ(rates.median().value(), 500);
  rates.add(0, 1);
  rates.add(1, 0);
  EXPECT_DOUBLE_EQ(rates.median().value(), 500);
}

TEST(SaveRates, OfTwoAreTheirMean) {
  SaveRates rates;
  rates.add(100, 1);
  rates.add(300, 1);
  EXPECT_DOUBLE_EQ(rates.median().value(), 200);
}

}  // namespace
}  // namespace cairn::format::testing
