// Ticks are read as proc(5) describes them, and the share refers to the time between two readings.
#include "bench/machine.hpp"

#include <gtest/gtest.h>

namespace cairn::bench {
namespace {

TEST(ProcessorUse, CountsAllButIdleAndWaiting) {
  const ProcessorTicks ticks = parse_processor_ticks("cpu  10 1 20 100 50 2 3 4 7 0");
  EXPECT_EQ(ticks.busy, 40);
  EXPECT_EQ(ticks.all, 190);
  EXPECT_EQ(busy_share({10, 100}, ticks), 30.0 / 90);
  EXPECT_EQ(busy_share(ticks, ticks), 0);
  EXPECT_EQ(parse_processor_ticks("intr 5").all, 0);
}

TEST(ProcessorUse, GrowsWhileSomethingRuns) {
  const ProcessorTicks begin = processor_ticks();
  ASSERT_GT(begin.all, 0);
  ProcessorTicks end = begin;
  while (end.busy <= begin.busy) end = processor_ticks();
  EXPECT_GT(busy_share(begin, end), 0);
  EXPECT_LE(busy_share(begin, end), 1);
}

}  // namespace
}  // namespace cairn::bench
