// Non-finite values of every float dtype, compared with a reader of the bits that shares no code with the count.
#include "quant/non_finite.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "random.hpp"

namespace cairn::quant {
namespace {

enum class What { kFinite, kInfinite, kNan };

/// Classifies a value of `exponent` and `mantissa` bits as in IEEE 754.
What ieee(std::uint64_t bits, unsigned exponent, unsigned mantissa) {
  for (unsigned b = 0; b < exponent; ++b) {
    if ((bits >> (mantissa + b) & 1) == 0) return What::kFinite;
  }
  for (unsigned b = 0; b < mantissa; ++b) {
    if ((bits >> b & 1) != 0) return What::kNan;
  }
  return What::kInfinite;
}

What what_is(DType dtype, std::uint64_t bits) {
  switch (dtype) {
    case DType::kF64: return ieee(bits, 11, 52);
    case DType::kF32:
    case DType::kC64: return ieee(bits, 8, 23);
    case DType::kF16: return ieee(bits, 5, 10);
    case DType::kBF16: return ieee(bits, 8, 7);
    case DType::kF8E5M2: return ieee(bits, 5, 2);
    case DType::kF8E4M3: return bits % 128 == 127 ? What::kNan : What::kFinite;
    case DType::kF8E8M0: return bits == 255 ? What::kNan : What::kFinite;
    default: return bits == 128 ? What::kNan : What::kFinite;
  }
}

constexpr DType kFloats[] = {DType::kF64,    DType::kF32,    DType::kC64,    DType::kF16,        DType::kBF16,
                             DType::kF8E5M2, DType::kF8E4M3, DType::kF8E8M0, DType::kF8E4M3Fnuz, DType::kF8E5M2Fnuz};

/// The count for values with these bits that begin one byte into an allocation.
NonFiniteCount count_of(DType dtype, const std::vector<std::uint64_t>& bits) {
  const std::uint64_t width = value_bytes(dtype);
  std::vector<std::byte> bytes(1 + bits.size() * width);
  for (std::size_t i = 0; i < bits.size(); ++i) std::memcpy(bytes.data() + 1 + i * width, &bits[i], width);
  return count_non_finite(dtype, std::span(bytes).subspan(1));
}

TEST(NonFinite, EveryValueOfEightAndSixteenBits) {
  for (const DType dtype : kFloats) {
    if (value_bytes(dtype) > 2) continue;
    const std::uint64_t values = 1ULL << 8 * value_bytes(dtype);
    for (std::uint64_t bits = 0; bits < values; ++bits) {
      const NonFiniteCount count = count_of(dtype, {bits});
      ASSERT_EQ(count.nans, what_is(dtype, bits) == What::kNan ? 1U : 0U) << name_of(dtype) << ' ' << bits;
      ASSERT_EQ(count.infinities, what_is(dtype, bits) == What::kInfinite ? 1U : 0U) << name_of(dtype) << ' ' << bits;
    }
  }
}

TEST(NonFinite, AmongManyValues) {
  auto random = test::make_random(1);
  for (const DType dtype : kFloats) {
    const std::uint64_t width = value_bytes(dtype);
    const unsigned exponent = dtype == DType::kF64 ? 11 : 8;
    for (int i = 0; i < 40; ++i) {
      std::vector<std::uint64_t> bits(test::uniform(random, 0, 3000));
      NonFiniteCount expected;
      for (std::uint64_t& value : bits) {
        value = random();
        if (width >= 4 && test::uniform(random, 0, 200) == 0) {  // otherwise hardly any value has such an exponent
          value |= ((1ULL << exponent) - 1) << (8 * width - 1 - exponent);
          if (test::uniform(random, 0, 1) != 0) value &= ~((1ULL << (8 * width - 1 - exponent)) - 1);
        }
        if (width < 8) value %= 1ULL << 8 * width;
        expected.nans += what_is(dtype, value) == What::kNan ? 1 : 0;
        expected.infinities += what_is(dtype, value) == What::kInfinite ? 1 : 0;
      }
      const NonFiniteCount count = count_of(dtype, bits);
      EXPECT_EQ(count.nans, expected.nans) << name_of(dtype);
      EXPECT_EQ(count.infinities, expected.infinities) << name_of(dtype);
    }
  }
}

TEST(NonFinite, OtherDtypesAreAlwaysFinite) {
  int floats = 0;
  for (int d = 0; d < kDTypeCount; ++d) floats += can_be_nan(static_cast<DType>(d)) ? 1 : 0;
  EXPECT_EQ(floats, 10);
  for (const DType dtype : kFloats) EXPECT_TRUE(can_be_nan(dtype));
}

}  // namespace
}  // namespace cairn::quant
