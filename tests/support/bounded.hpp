// For tests of inputs that are made to do harm: what reading them may cost.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <ctime>

#include "process_growth.hpp"

namespace cairn::test {

/// Small allocations have as much again around them there, and freed memory is kept.
#if defined(CAIRN_ADDRESS_SANITIZER)
inline constexpr std::uint64_t kAllocationFactor = 8;
#else
inline constexpr std::uint64_t kAllocationFactor = 1;
#endif

/// Expects of `work` at most so much processor time of this process, and so much memory beyond what it has. Limits are wide,
/// for sanitizers and slow machines: they tell linear from quadratic, not fast from slow.
template <class Work>
void expect_bounded(double seconds, std::uint64_t bytes, const Work& work) {
  const std::clock_t start = std::clock();
  const std::uint64_t growth = growth_bytes(work);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, seconds);
  EXPECT_LT(growth, bytes * kAllocationFactor);
}

}  // namespace cairn::test
