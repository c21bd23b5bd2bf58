// Weights in another dtype: every half value widens to what it is and comes back; rounding is to the nearest, ties to even.
#include "codes/cast.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "cairn/error.hpp"
#include "export/values.hpp"
#include "random.hpp"

namespace cairn::checkpoint {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<float> widened(DType from, const std::vector<std::uint16_t>& values) {
  std::vector<float> out(values.size());
  cast_values(from, bytes_of(values), DType::kF32, std::as_writable_bytes(std::span(out)));
  return out;
}

std::vector<std::uint16_t> rounded(DType to, const std::vector<float>& values) {
  std::vector<std::uint16_t> out(values.size());
  cast_values(DType::kF32, bytes_of(values), to, std::as_writable_bytes(std::span(out)));
  return out;
}

std::uint16_t round_one(DType to, float value) { return rounded(to, {value}).at(0); }

class Halves : public testing::TestWithParam<DType> {};

TEST_P(Halves, EveryValueWidensExactlyAndComesBack) {
  std::vector<std::uint16_t> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const std::vector<float> wide = widened(GetParam(), all);
  const std::vector<double> expected = decode_values(GetParam(), bytes_of(all));
  const std::vector<std::uint16_t> back = rounded(GetParam(), wide);
  const std::vector<double> returned = decode_values(GetParam(), bytes_of(back));
  ASSERT_EQ(expected.size(), all.size());
  ASSERT_EQ(returned.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(std::signbit(wide[i]), (i & 0x8000) != 0) << i;
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(wide[i])) << i;
      ASSERT_TRUE(std::isnan(returned[i])) << i;
      continue;
    }
    ASSERT_EQ(static_cast<double>(wide[i]), expected[i]) << i;
    ASSERT_EQ(back[i], all[i]);
  }
}

/// Between each pair of neighbours: below the middle, the middle, above it.
TEST_P(Halves, RoundsToTheNearestAndTiesToEven) {
  const std::uint16_t infinity = GetParam() == DType::kF16 ? 0x7c00 : 0x7f80;
  for (std::uint16_t low = 0; low + 1 < infinity; ++low) {
    const auto next = static_cast<std::uint16_t>(low + 1);
    const auto values = widened(GetParam(), {low, next});
    const auto middle = static_cast<float>((static_cast<double>(values[0]) + static_cast<double>(values[1])) / 2);
    ASSERT_LT(values[0], middle);  // F32 has the middle exactly
    const float largest = std::numeric_limits<float>::max();
    const auto found = rounded(GetParam(), {std::nextafter(middle, 0.0F), middle, std::nextafter(middle, largest),
                                            -middle, -std::nextafter(middle, largest)});
    const std::uint16_t even = low % 2 == 0 ? low : next;
    ASSERT_EQ(found, (std::vector<std::uint16_t>{low, even, next, static_cast<std::uint16_t>(even | 0x8000),
                                                 static_cast<std::uint16_t>(next | 0x8000)}))
        << low;
  }
}

INSTANTIATE_TEST_SUITE_P(Both, Halves, testing::Values(DType::kF16, DType::kBF16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

TEST(Cast, TooLargeBecomesInfinityAndNanStaysNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(round_one(DType::kF16, 65519.996F), 0x7bff);
  EXPECT_EQ(round_one(DType::kF16, 65520.0F), 0x7c00);
  EXPECT_EQ(round_one(DType::kF16, -1e30F), 0xfc00);
  EXPECT_EQ(round_one(DType::kF16, infinity), 0x7c00);
  EXPECT_EQ(round_one(DType::kF16, 1e-30F), 0);
  EXPECT_EQ(round_one(DType::kBF16, std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(round_one(DType::kBF16, -infinity), 0xff80);
  // All 1s below the place that is kept, and a NaN whose only bit is dropped.
  for (const std::uint32_t nan : {0x7fff'ffffU, 0xffff'ffffU, 0x7f80'0001U, 0xff80'0001U}) {
    for (const DType to : {DType::kF16, DType::kBF16}) {
      const std::uint16_t bits = round_one(to, std::bit_cast<float>(nan));
      EXPECT_TRUE(std::isnan(widened(to, {bits}).at(0))) << nan;
      EXPECT_EQ(bits >> 15, nan >> 31);
    }
  }
}

TEST(Cast, AtAnyAddress) {
  auto random = test::make_random(1);
  const auto values = test::random_bytes(random, 2 * 100 + 1);
  std::vector<std::byte> out(4 * 100 + 3);
  cast_values(DType::kBF16, std::span(values).subspan(1), DType::kF32, std::span(out).subspan(3));
  std::vector<std::uint16_t> aligned(100);
  std::memcpy(aligned.data(), values.data() + 1, 200);
  EXPECT_EQ(std::memcmp(widened(DType::kBF16, aligned).data(), out.data() + 3, 400), 0);
}

TEST(Cast, WhatItCannotDoIsRefused) {
  EXPECT_TRUE(can_cast(DType::kF32, DType::kF32));
  EXPECT_FALSE(can_cast(DType::kI32, DType::kF32));
  EXPECT_FALSE(can_cast(DType::kF16, DType::kBF16));
  EXPECT_FALSE(can_cast(DType::kF64, DType::kF16));
  std::vector<std::byte> memory(8);
  EXPECT_THROW(cast_values(DType::kF16, memory, DType::kF32, memory), Error);
  EXPECT_THROW(cast_values(DType::kI16, std::span(memory).first(4), DType::kF32, memory), Error);
}

}  // namespace
}  // namespace cairn::checkpoint
