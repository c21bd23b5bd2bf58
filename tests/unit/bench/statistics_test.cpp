// Minimum, median, maximum.
#include "bench/statistics.hpp"

#include <gtest/gtest.h>

namespace cairn::bench {
namespace {

TEST(Statistics, OfNothingIsNothing) {
  const Summary summary = summarise({});
  EXPECT_EQ(summary.min, 0);
  EXPECT_EQ(summary.median, 0);
  EXPECT_EQ(summary.max, 0);
  EXPECT_TRUE(summary.values.empty());
}

TEST(Statistics, OfOneValueIsThatValue) {
  const Summary summary = summarise({2.5});
  EXPECT_EQ(summary.min, 2.5);
  EXPECT_EQ(summary.median, 2.5);
  EXPECT_EQ(summary.max, 2.5);
}

TEST(Statistics, OddAndEvenNumbersOfValues) {
  EXPECT_EQ(summarise({9, 1, 5}).median, 5);
  EXPECT_EQ(summarise({9, 1, 5, 2}).median, 3.5);
  EXPECT_EQ(summarise({9, 1, 5, 2}).min, 1);
  EXPECT_EQ(summarise({9, 1, 5, 2}).max, 9);
}

TEST(Statistics, ValuesKeepTheOrderOfMeasurement) {
  EXPECT_EQ(summarise({9, 1, 5}).values, (std::vector<double>{9, 1, 5}));
}

}  // namespace
}  // namespace cairn::bench
