// Limits on the cost of reading malicious input.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <ctime>

#include "process_growth.hpp"

namespace cairn::test {

/// Under the address sanitizer small allocations need twice their size, freed memory is kept, and code runs several
/// times slower.
#if defined(CAIRN_ADDRESS_SANITIZER)
inline constexpr std::uint64_t kAllocationFactor = 8;
inline constexpr double kTimeFactor = 4;
#else
inline constexpr std::uint64_t kAllocationFactor = 1;
inline constexpr double kTimeFactor = 1;
#endif

/// Expects `work` to stay within these limits of processor time and additional memory of this process. Limits are
/// wide, for sanitizers and slow machines: they distinguish linear from quadratic, not fast from slow.
template <class Work>
void expect_bounded(double seconds, std::uint64_t bytes, const Work& work) {
  const std::clock_t start = std::clock();
  const std::uint64_t growth = growth_bytes(work);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, seconds * kTimeFactor);
  EXPECT_LT(growth, bytes * kAllocationFactor);
}

}  // namespace cairn::test
