// The refinements of own_math.hpp, which GPUs run, for every first guess that a GPU may make: NVIDIA's PTX manual gives
// rcp.approx an error of one unit in the last place and rsqrt.approx one of 2^-22.9 (2.2 units).
#include "quant/own_math.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "random.hpp"

namespace cairn::quant::exact {
namespace {

constexpr std::uint32_t kOne = 0x3f800000U;
constexpr std::uint32_t kSignificands = 1U << 23;

float moved(float value, int units) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) + static_cast<std::uint32_t>(units));
}

/// The significands for which some guess does not lead to the reciprocal.
std::vector<float> hard_divisors() {
  std::vector<float> hard;
  for (std::uint32_t i = 0; i < kSignificands; ++i) {
    const float b = std::bit_cast<float>(kOne + i);
    const float expected = 1.0f / b;
    bool is_right = true;
    for (int units = -2; units <= 2; ++units) is_right &= refined_reciprocal(b, moved(expected, units)) == expected;
    if (!is_right) hard.push_back(b);
  }
  return hard;
}

TEST(ExactMath, EveryReciprocal) {
  const auto hard = hard_divisors();
  EXPECT_TRUE(hard.empty()) << hard.size() << ", the first: " << testing::PrintToString(hard.front());
}

TEST(ExactMath, EveryRoot) {
  std::uint64_t wrong = 0;
  for (std::uint32_t i = 0; i < 2 * kSignificands; ++i) {  // two octaves: all other values are these times a power of 4
    const float w = std::bit_cast<float>(kOne + i);
    const float expected = std::sqrt(w);
    const auto guess = static_cast<float>(1.0 / std::sqrt(static_cast<double>(w)));
    for (int units = -3; units <= 3; ++units) wrong += refined_root(w, moved(guess, units)) == expected ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(ExactMath, QuotientsOfHardDivisors) {
  // The divisor just below a power of 2, the exception to Markstein's theorem, with every dividend;
  // and the one dividend of own_math.hpp with every divisor.
  std::uint64_t wrong = 0;
  const float b = std::bit_cast<float>(kOne + kSignificands - 1);
  for (std::uint32_t i = 0; i < 2 * kSignificands; ++i) {
    const float a = std::bit_cast<float>(kOne + i);
    wrong += refined_quotient(a, b, 1.0f / b) == a / b ? 0 : 1;
    wrong += refined_quotient(3.0f, a, 1.0f / a) == 3.0f / a ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(ExactMath, Quotients) {
  // Exact by Markstein's theorem, given correctly rounded reciprocals; this is a sample.
  auto random = cairn::test::make_random();
  std::uint64_t wrong = 0;
  for (int i = 0; i < 20'000'000; ++i) {
    const std::uint64_t bits = random();
    const float b = std::bit_cast<float>(kOne + static_cast<std::uint32_t>(bits % kSignificands));
    const float a = std::bit_cast<float>(kOne + static_cast<std::uint32_t>((bits >> 32) % (2 * kSignificands)));
    wrong += refined_quotient(a, b, 1.0f / b) == a / b ? 0 : 1;
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(ExactMath, ScaledRatiosAreTheRatiosWhereTheyCount) {
  auto random = cairn::test::make_random(1);
  int compared = 0;
  for (int i = 0; i < 3'000'000; ++i) {
    const auto bits = random();
    const float m = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    float v = std::bit_cast<float>(static_cast<std::uint32_t>(bits >> 32) & 0x7fffffffU);
    if (i % 10 == 0) v = 0;
    if (!std::isfinite(m) || !std::isfinite(v)) continue;
    const float expected = m / (v == 0.0f ? 0x1p-27f : std::sqrt(v));
    const float found = scaled_ratio(m, v, 0x1p-27f);
    if (std::fabs(expected) < 0x1p-60f) {
      ASSERT_LT(std::fabs(found), 0x1p-59f);
    } else if (std::fabs(expected) > 0x1p100f) {
      ASSERT_FALSE(std::fabs(found) < 0x1p99f);
    } else {
      ASSERT_EQ(found, expected) << m << " and " << v;
      ++compared;
    }
  }
  EXPECT_GT(compared, 1'000'000);
}

}  // namespace
}  // namespace cairn::quant::exact
