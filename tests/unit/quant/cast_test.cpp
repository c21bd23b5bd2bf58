// Weights in a different dtype: every half-precision value widens exactly and converts back;
// rounding is to nearest, ties to even.
#include "quant/cast.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "cairn/error.hpp"
#include "random.hpp"

namespace cairn::quant {
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

/// The value of a float with these bits, by the definition of its format; not for infinities and NaN.
double value_of(std::uint32_t bits, int width, int fraction_bits, int bias) {
  const std::uint32_t magnitude = bits & ((1U << (width - 1)) - 1);
  const auto exponent = static_cast<int>(magnitude >> fraction_bits);
  const auto fraction = static_cast<int>(magnitude & ((1U << fraction_bits) - 1));
  const int significand = exponent == 0 ? fraction : fraction + (1 << fraction_bits);
  const double absolute = std::ldexp(significand, std::max(exponent, 1) - bias - fraction_bits);
  return magnitude == bits ? absolute : -absolute;
}

class Halves : public testing::TestWithParam<DType> {};

TEST_P(Halves, EveryValueWidensExactlyAndComesBack) {
  std::vector<std::uint16_t> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const std::vector<float> wide = widened(GetParam(), all);
  const std::vector<std::uint16_t> back = rounded(GetParam(), wide);
  const bool is_f16 = GetParam() == DType::kF16;
  const std::uint32_t infinity = is_f16 ? 0x7c00 : 0x7f80;
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    ASSERT_EQ(std::signbit(wide[i]), (i & 0x8000) != 0) << i;
    const std::uint32_t magnitude = i & 0x7fff;
    if (magnitude > infinity) {
      ASSERT_TRUE(std::isnan(wide[i])) << i;
      ASSERT_GT(back[i] & 0x7fffU, infinity) << i;
      continue;
    }
    if (magnitude == infinity) {
      ASSERT_TRUE(std::isinf(wide[i])) << i;
    } else {
      ASSERT_EQ(static_cast<double>(wide[i]), is_f16 ? value_of(i, 16, 10, 15) : value_of(i, 16, 7, 127)) << i;
    }
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
  // NaNs that would overflow if rounded up, and NaNs whose fraction has a 1 only in bits that are dropped.
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

/// An F64 value, and its conversions.
struct Golden {
  std::uint64_t f64;
  std::uint32_t f32;
  std::uint16_t f16;
  std::uint16_t bf16;
};

// Made by numpy 2 (F32, F16) and by exact fractions (BF16); torch 2.15 agrees if F32 can hold the value.
constexpr Golden kGolden[] = {
    {0x0000000000000000, 0x00000000, 0x0000, 0x0000},  // 0.0
    {0x8000000000000000, 0x80000000, 0x8000, 0x8000},  // -0.0
    {0x3ff0000000000000, 0x3f800000, 0x3c00, 0x3f80},  // 1.0
    {0xbff8000000000000, 0xbfc00000, 0xbe00, 0xbfc0},  // -1.5
    {0x400921fb54442d18, 0x40490fdb, 0x4248, 0x4049},  // 3.141592653589793
    {0xc005bf0a8b145769, 0xc02df854, 0xc170, 0xc02e},  // -2.718281828459045
    {0x3fd5555555555555, 0x3eaaaaab, 0x3555, 0x3eab},  // 0.3333333333333333
    {0x40effc0000000000, 0x477fe000, 0x7bff, 0x4780},  // 65504.0
    {0x40effdfff7ced917, 0x477ff000, 0x7bff, 0x4780},  // 65519.999
    {0x40effe0000000000, 0x477ff000, 0x7c00, 0x4780},  // 65520.0
    {0xc0effe0000000000, 0xc77ff000, 0xfc00, 0xc780},  // -65520.0
    {0x40f86a0000000000, 0x47c35000, 0x7c00, 0x47c3},  // 100000.0
    {0x47efe00000000000, 0x7f7f0000, 0x7c00, 0x7f7f},  // 3.3895313892515355e+38
    {0x47eff933c78cdfad, 0x7f7fc99e, 0x7c00, 0x7f80},  // 3.4e+38
    {0x47effffff0000000, 0x7f800000, 0x7c00, 0x7f80},  // 3.4028235677973366e+38
    {0x48078287f49c4a1d, 0x7f800000, 0x7c00, 0x7f80},  // 1e+39
    {0xfe37e43c8800759c, 0xff800000, 0xfc00, 0xff80},  // -1e+300
    {0x3ff0100000000000, 0x3f808000, 0x3c04, 0x3f80},  // 1.00390625
    {0x3ff0300000000000, 0x3f818000, 0x3c0c, 0x3f82},  // 1.01171875
    {0x3ff0100000001000, 0x3f808000, 0x3c04, 0x3f81},  // 1.0039062500009095
    {0x3ff0020000000000, 0x3f801000, 0x3c00, 0x3f80},  // 1.00048828125
    {0x3ff0060000000000, 0x3f803000, 0x3c02, 0x3f80},  // 1.00146484375
    {0x3ff0020000001000, 0x3f801000, 0x3c01, 0x3f80},  // 1.0004882812509095
    {0x3ff0000010000000, 0x3f800000, 0x3c00, 0x3f80},  // 1.0000000596046448
    {0x3ff0000010000004, 0x3f800001, 0x3c00, 0x3f80},  // 1.0000000596046457
    {0x3e70000000000000, 0x33800000, 0x0001, 0x3380},  // 5.960464477539063e-08
    {0x3e60000000000000, 0x33000000, 0x0000, 0x3300},  // 2.9802322387695312e-08
    {0x3e60000000020000, 0x33000000, 0x0001, 0x3300},  // 2.9802322388562674e-08
    {0xbe60000000000000, 0xb3000000, 0x8000, 0xb300},  // -2.9802322387695312e-08
    {0x3f0ffb480a5accd5, 0x387fda40, 0x03ff, 0x3880},  // 6.1e-05
    {0x3e6fff5c939522db, 0x337ffae5, 0x0001, 0x3380},  // 5.96e-08
    {0x3e601b2b29a4692b, 0x3300d959, 0x0001, 0x3301},  // 3e-08
    {0x3810000000000000, 0x00800000, 0x0000, 0x0080},  // 1.1754943508222875e-38
    {0x36a0000000000000, 0x00000001, 0x0000, 0x0000},  // 1.401298464324817e-45
    {0x3690000000000000, 0x00000000, 0x0000, 0x0000},  // 7.006492321624085e-46
    {0x3690000000400000, 0x00000001, 0x0000, 0x0000},  // 7.00649232814939e-46
    {0x37a0000000000000, 0x00010000, 0x0000, 0x0001},  // 9.183549615799121e-41
    {0x3790000000000000, 0x00008000, 0x0000, 0x0000},  // 4.591774807899561e-41
    {0x3790000000010000, 0x00008000, 0x0000, 0x0001},  // 4.59177480796638e-41
    {0x0000000000000001, 0x00000000, 0x0000, 0x0000},  // 5e-324
    {0x800012688b70e62b, 0x80000000, 0x8000, 0x8000},  // -1e-310
    {0x7ff0000000000000, 0x7f800000, 0x7c00, 0x7f80},  // inf
    {0xfff0000000000000, 0xff800000, 0xfc00, 0xff80},  // -inf
    {0x406ff00000000000, 0x437f8000, 0x5bfc, 0x4380},  // 255.5
    {0x40a0020000000000, 0x45001000, 0x6800, 0x4500},  // 2049.0
    {0x40fe240c9fbe76c9, 0x47f12065, 0x7c00, 0x47f1},  // 123456.789
};

template <class To, class From>
To cast_one(DType from, From value, DType to) {
  To out{};
  cast_values(from, std::as_bytes(std::span(&value, 1)), to, std::as_writable_bytes(std::span(&out, 1)));
  return out;
}

TEST(Cast, F64RoundsOnceToWhatNumpyHas) {
  for (const Golden& row : kGolden) {
    EXPECT_EQ(cast_one<std::uint32_t>(DType::kF64, row.f64, DType::kF32), row.f32) << std::hex << row.f64;
    EXPECT_EQ(cast_one<std::uint16_t>(DType::kF64, row.f64, DType::kF16), row.f16) << std::hex << row.f64;
    EXPECT_EQ(cast_one<std::uint16_t>(DType::kF64, row.f64, DType::kBF16), row.bf16) << std::hex << row.f64;
  }
  for (const std::uint64_t nan : {0x7fff'ffff'ffff'ffffULL, 0xfff0'0000'0000'0001ULL, 0x7ff8'0000'0000'0000ULL}) {
    const auto f32 = cast_one<std::uint32_t>(DType::kF64, nan, DType::kF32);
    EXPECT_TRUE(std::isnan(std::bit_cast<float>(f32)));
    EXPECT_EQ(f32 >> 31, nan >> 63);
    for (const DType to : {DType::kF16, DType::kBF16}) {
      const auto bits = cast_one<std::uint16_t>(DType::kF64, nan, to);
      EXPECT_TRUE(std::isnan(widened(to, {bits}).at(0)));
      EXPECT_EQ(bits >> 15, nan >> 63);
    }
  }
}

TEST(Cast, WideningToF64IsExactAndComesBack) {
  for (const Golden& row : kGolden) {
    EXPECT_EQ(cast_one<std::uint64_t>(DType::kF32, row.f32, DType::kF64),
              std::bit_cast<std::uint64_t>(static_cast<double>(std::bit_cast<float>(row.f32))));
    for (const auto& [dtype, bits] : {std::pair{DType::kF16, row.f16}, std::pair{DType::kBF16, row.bf16}}) {
      const auto wide = cast_one<std::uint64_t>(dtype, bits, DType::kF64);
      EXPECT_EQ(std::bit_cast<double>(wide), static_cast<double>(widened(dtype, {bits}).at(0)));
      EXPECT_EQ(cast_one<std::uint16_t>(DType::kF64, wide, dtype), bits);
      const DType other = dtype == DType::kF16 ? DType::kBF16 : DType::kF16;
      EXPECT_EQ(cast_one<std::uint16_t>(dtype, bits, other), rounded(other, widened(dtype, {bits})).at(0));
    }
  }
  const auto nan = cast_one<std::uint64_t>(DType::kF32, 0xff80'0001U, DType::kF64);
  EXPECT_TRUE(std::isnan(std::bit_cast<double>(nan)));
  EXPECT_EQ(nan >> 63, 1U);
}

TEST(Cast, EveryValueOfEightBitsWidensExactly) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 256; ++i) {
    const auto bits = static_cast<std::uint8_t>(i);
    const int magnitude = i & 0x7f;
    const double sign = i >= 0x80 ? -1 : 1;
    const auto e4m3 = std::bit_cast<double>(cast_one<std::uint64_t>(DType::kF8E4M3, bits, DType::kF64));
    const auto e5m2 = std::bit_cast<double>(cast_one<std::uint64_t>(DType::kF8E5M2, bits, DType::kF64));
    EXPECT_EQ(std::signbit(e4m3), sign < 0) << i;
    EXPECT_EQ(std::signbit(e5m2), sign < 0) << i;
    if (magnitude == 0x7f) {
      EXPECT_TRUE(std::isnan(e4m3)) << i;
    } else {
      EXPECT_EQ(e4m3, value_of(bits, 8, 3, 7)) << i;
    }
    if (magnitude > 0x7c) {
      EXPECT_TRUE(std::isnan(e5m2)) << i;
    } else {
      EXPECT_EQ(e5m2, magnitude == 0x7c ? sign * infinity : value_of(bits, 8, 2, 15)) << i;
    }
  }
  EXPECT_EQ(cast_one<std::uint32_t>(DType::kF8E4M3, std::uint8_t{0x7e}, DType::kF32), 0x43e0'0000U);  // 448, as torch
  EXPECT_EQ(cast_one<std::uint32_t>(DType::kF8E5M2, std::uint8_t{0x7b}, DType::kF32), 0x4760'0000U);  // 57344
}

TEST(Cast, WhatItCannotDoIsRefused) {
  EXPECT_TRUE(can_convert(DType::kF64, DType::kF16));
  EXPECT_TRUE(can_convert(DType::kF8E4M3, DType::kBF16));
  EXPECT_TRUE(can_convert(DType::kI8, DType::kI8));
  EXPECT_FALSE(can_convert(DType::kF32, DType::kF8E4M3));
  EXPECT_FALSE(can_convert(DType::kF8E8M0, DType::kF32));
  EXPECT_FALSE(can_convert(DType::kI32, DType::kF32));
  EXPECT_FALSE(can_convert(DType::kF32, DType::kI32));
  EXPECT_TRUE(can_cast(DType::kF32, DType::kF32));
  EXPECT_FALSE(can_cast(DType::kI32, DType::kF32));
  EXPECT_FALSE(can_cast(DType::kF16, DType::kBF16));
  EXPECT_FALSE(can_cast(DType::kF64, DType::kF16));
  std::vector<std::byte> memory(8);
  EXPECT_THROW(cast_values(DType::kF16, memory, DType::kF32, memory), Error);
  EXPECT_THROW(cast_values(DType::kI16, std::span(memory).first(4), DType::kF32, memory), Error);
}

TEST(CountOverflows, CountsFiniteValuesThatBecomeInfinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1, 65519, 65520, -65536, infinity, -infinity, std::nanf(""), 3.4e38F, -3.4e38F};
  const auto count = [&](DType to) {
    std::vector<std::byte> out(values.size() * bits_of(to) / 8);
    cast_values(DType::kF32, bytes_of(values), to, out);
    return count_overflows(DType::kF32, bytes_of(values), to, out);
  };
  EXPECT_EQ(count(DType::kF16), 4U);
  EXPECT_EQ(count(DType::kBF16), 2U);
  EXPECT_EQ(count(DType::kF64), 0U);
  EXPECT_EQ(count(DType::kF32), 0U);
  const std::vector<double> doubles = {1e39, -1e300, 3.4e38, std::numeric_limits<double>::infinity()};
  std::vector<float> out(doubles.size());
  cast_values(DType::kF64, bytes_of(doubles), DType::kF32, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(count_overflows(DType::kF64, bytes_of(doubles), DType::kF32, bytes_of(out)), 2U);
}

}  // namespace
}  // namespace cairn::quant
