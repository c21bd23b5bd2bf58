// Differences between elements: exact between integers, by value between floats, element by element for all others.
#include "conversion/compare_elements.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <vector>

#include "base/bytes.hpp"
#include "conversion/window_ranges.hpp"
#include "shard/box_math.hpp"

namespace cairn::conversion {
namespace {

template <class T>
base::Bytes bytes_of(std::initializer_list<T> values) {
  base::Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), std::data(values), bytes.size());
  return bytes;
}

template <class A, class B>
Findings compared(DType dtype_a, std::initializer_list<A> a, DType dtype_b, std::initializer_list<B> b,
                  const Tolerance& tolerance = {}) {
  return compare_elements({dtype_a, dtype_b, bytes_of(a), bytes_of(b)}, tolerance);
}

template <class T>
Findings compared(DType dtype, std::initializer_list<T> a, std::initializer_list<T> b,
                  const Tolerance& tolerance = {}) {
  return compared(dtype, a, dtype, b, tolerance);
}

std::uint64_t whole(const Findings& found, DType a, DType b) {
  return std::get<std::uint64_t>(difference_of(found.largest, a, b));
}

double real(const Findings& found, DType a, DType b) { return std::get<double>(difference_of(found.largest, a, b)); }

constexpr std::uint64_t kMaxU64 = std::numeric_limits<std::uint64_t>::max();
constexpr std::int64_t kMinI64 = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMaxI64 = std::numeric_limits<std::int64_t>::max();
constexpr std::uint64_t k53 = 1ULL << 53;  // above, not every integer is a double

TEST(CompareElements, LargeIntegersDifferByWhatTheyDiffer) {
  const auto u64 = [](std::uint64_t a, std::uint64_t b) {
    const Findings found = compared(DType::kU64, {a}, {b});
    EXPECT_EQ(found.differing, a == b ? 0U : 1U);
    EXPECT_EQ(found.outside, found.differing);
    return whole(found, DType::kU64, DType::kU64);
  };
  EXPECT_EQ(u64(k53, k53 + 1), 1U);
  EXPECT_EQ(u64(k53 + 1, k53), 1U);
  EXPECT_EQ(u64(1ULL << 60, (1ULL << 60) + 100), 100U);
  EXPECT_EQ(u64(0, kMaxU64), kMaxU64);
  EXPECT_EQ(u64(kMaxU64, kMaxU64), 0U);
  const auto i64 = [](std::int64_t a, std::int64_t b) {
    return whole(compared(DType::kI64, {a}, {b}), DType::kI64, DType::kI64);
  };
  EXPECT_EQ(i64(-(1LL << 53), -(1LL << 53) - 1), 1U);
  EXPECT_EQ(i64(kMinI64, kMaxI64), kMaxU64);
  EXPECT_EQ(i64(kMaxI64, kMinI64), kMaxU64);
  EXPECT_EQ(i64(-1, 1), 2U);
  EXPECT_EQ(whole(compared<std::int16_t>(DType::kI16, {-2}, {0}), DType::kI16, DType::kI16), 2U);
  EXPECT_EQ(whole(compared<std::uint8_t>(DType::kU8, {7, 250, 9}, {7, 0, 10}), DType::kU8, DType::kU8), 250U);
}

TEST(CompareElements, AToleranceOfIntegersIsAnAbsoluteDifferenceAndExact) {
  const auto outside = [](std::uint64_t a, std::uint64_t b, const Tolerance& tolerance) {
    const Findings found = compared(DType::kU64, {a}, {b}, tolerance);
    EXPECT_EQ(found.differing, 1U);
    return found.outside;
  };
  EXPECT_EQ(outside(k53, k53 + 1, {0, 0.5}), 1U);
  EXPECT_EQ(outside(k53, k53 + 1, {0, 1}), 0U);
  EXPECT_EQ(outside(k53 + 1, k53 + 3, {0, 1.99}), 1U);
  EXPECT_EQ(outside(0, k53 + 1, {0, 0x1p53}), 1U);
  EXPECT_EQ(outside(0, k53, {0, 0x1p53}), 0U);
  EXPECT_EQ(outside(0, kMaxU64, {0, 1e300}), 0U);
  EXPECT_EQ(outside(1000, 1001, {0.5, 0}), 1U) << "a relative tolerance is for floats";
  EXPECT_EQ(compared<bool>(DType::kBool, {true}, {false}, {1, 1}).outside, 1U);
}

TEST(CompareElements, IntegersOfTwoDtypes) {
  const Findings equal = compared<std::int64_t, std::uint64_t>(DType::kI64, {5, kMaxI64}, DType::kU64,
                                                               {5, static_cast<std::uint64_t>(kMaxI64)});
  EXPECT_EQ(equal.differing, 0U);
  const Findings signs = compared<std::int64_t, std::uint64_t>(DType::kI64, {-1}, DType::kU64, {kMaxU64 - 1});
  EXPECT_EQ(signs.differing, 1U);
  EXPECT_EQ(whole(signs, DType::kI64, DType::kU64), kMaxU64);
  const Findings beyond =
      compared<std::int64_t, std::uint64_t>(DType::kI64, {kMinI64}, DType::kU64, {kMaxU64}, {0, 2e19});
  EXPECT_EQ(beyond.outside, 1U) << "2^63 + 2^64 - 1";
  EXPECT_EQ(whole(beyond, DType::kI64, DType::kU64), kMaxU64);
  EXPECT_EQ(whole(compared<bool, std::uint8_t>(DType::kBool, {true}, DType::kU8, {3}), DType::kBool, DType::kU8), 2U);
}

TEST(CompareElements, AnIntegerAndAFloat) {
  const auto found = [](std::uint64_t a, double b) {
    const Findings one = compared<std::uint64_t, double>(DType::kU64, {a}, DType::kF64, {b});
    const Findings other = compared<double, std::uint64_t>(DType::kF64, {b}, DType::kU64, {a});
    EXPECT_EQ(one.differing, other.differing);
    EXPECT_EQ(one.largest, other.largest);
    EXPECT_EQ(one.differing == 0, one.largest == 0);
    return real(one, DType::kU64, DType::kF64);
  };
  EXPECT_EQ(found(3, 3.0), 0.0);
  EXPECT_EQ(found(3, 3.25), 0.25);
  EXPECT_EQ(found(k53 + 1, 0x1p53), 1.0);
  EXPECT_EQ(found(kMaxU64, 0x1p64), 1.0);
  EXPECT_EQ(found(1, 1e300), 1e300);
  EXPECT_TRUE(std::isinf(found(1, std::nan(""))));
  EXPECT_TRUE(std::isinf(found(1, -std::numeric_limits<double>::infinity())));
}

TEST(CompareElements, TolerancesHaveAllDigits) {
  const auto outside = [](long double absolute, std::int64_t a, std::int64_t b) {
    return compared<std::int64_t>(DType::kI64, {a}, {b}, {0, absolute}).outside;
  };
  EXPECT_EQ(outside(18446744073709551614.0L, kMaxI64, kMinI64), 1U) << "2^64 - 1 is one more";
  EXPECT_EQ(outside(18446744073709551615.0L, kMaxI64, kMinI64), 0U);
  EXPECT_EQ(outside(9007199254740993.0L, 0, 9007199254740993), 0U);
  EXPECT_EQ(outside(9007199254740992.0L, 0, 9007199254740993), 1U);
  const auto mixed = [](long double absolute) {
    return compared<std::int64_t, double>(DType::kI64, {9007199254740993}, DType::kF64, {0}, {0, absolute}).outside;
  };
  EXPECT_EQ(mixed(9007199254740992.0L), 1U);
  EXPECT_EQ(mixed(9007199254740993.0L), 0U);
}

TEST(CompareElements, DifferencesBeyondTheRangeOfDoubles) {
  const auto far = [](const Tolerance& tolerance) {
    return compared<double>(DType::kF64, {1e308}, {-1e308}, tolerance);
  };
  EXPECT_EQ(far({2, 0}).outside, 0U);
  EXPECT_EQ(far({1.5, 0}).outside, 1U);
  EXPECT_EQ(real(far({}), DType::kF64, DType::kF64), std::numeric_limits<double>::max());
  EXPECT_EQ(compared<double>(DType::kF64, {0.1}, {0.0}, {0, 0.1L}).outside, 0U) << "0.1 is a double there";
  EXPECT_EQ(compared<double>(DType::kF64, {13.0}, {10.0}, {0.3, 0}).outside, 0U);
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(compared<double>(DType::kF64, {infinity}, {1.0}, {2, 1e30L}).outside, 1U);
}

TEST(CompareElements, FloatsByValueAndTheirBits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Findings found =
      compared<float>(DType::kF32, {1.0F, -0.0F, nan, 2.0F, nan}, {1.5F, 0.0F, nan, 2.0F, 1.0F}, {0.1, 0.4});
  EXPECT_EQ(found.differing, 3U);
  EXPECT_EQ(found.outside, 1U) << "0.5 <= 0.4 + 0.1 * 1.5";
  EXPECT_TRUE(std::isinf(real(found, DType::kF32, DType::kF32)));
  const Findings widened = compared<float, double>(DType::kF32, {-0.0F, nan}, DType::kF64, {0.0, std::nan("")});
  EXPECT_EQ(widened.differing, 0U);
}

/// Elements of some bits, packed from the lowest bit on.
base::Bytes packed(unsigned bits, const std::vector<unsigned>& elements) {
  base::Bytes bytes(elements.size() * bits / 8);
  for (std::size_t i = 0; i < elements.size() * bits; ++i) {
    const unsigned bit = elements[i / bits] >> (i % bits) & 1U;
    bytes[i / 8] |= static_cast<std::byte>(bit << (i % 8));
  }
  return bytes;
}

TEST(CompareElements, SubByteElementsAreCountedOneByOne) {
  const auto differing = [](DType dtype, const std::vector<unsigned>& a, const std::vector<unsigned>& b) {
    const base::Bytes bytes_a = packed(bits_of(dtype), a);
    const base::Bytes bytes_b = packed(bits_of(dtype), b);
    const Findings found = compare_elements({dtype, dtype, bytes_a, bytes_b}, {1e9, 1e9});
    EXPECT_EQ(found.outside, found.differing);
    return found.differing;
  };
  EXPECT_EQ(differing(DType::kF4, {1, 2, 3, 4}, {1, 2, 3, 4}), 0U);
  EXPECT_EQ(differing(DType::kF4, {1, 2, 3, 4}, {1, 2, 5, 4}), 1U);
  EXPECT_EQ(differing(DType::kF4, {1, 2, 3, 4}, {1, 2, 3, 12}), 1U);
  EXPECT_EQ(differing(DType::kF4, {1, 2, 3, 4, 5, 6}, {0, 0, 3, 0, 5, 6}), 3U);
  for (const DType dtype : {DType::kF6E2M3, DType::kF6E3M2}) {
    const std::vector<unsigned> all = {63, 1, 2, 3, 17, 33, 5, 60};
    EXPECT_EQ(differing(dtype, all, all), 0U);
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::vector<unsigned> other = all;
      other[i] ^= 0x21U;  // bits in two bytes, for some elements
      EXPECT_EQ(differing(dtype, all, other), 1U) << i;
    }
    EXPECT_EQ(differing(dtype, all, {0, 1, 0, 3, 17, 33, 5, 0}), 3U);
  }
  EXPECT_EQ(compared<std::uint8_t>(DType::kF8E8M0, {1, 2, 3}, {1, 4, 5}, {1, 9}).outside, 2U);
  EXPECT_EQ(compared<float>(DType::kC64, {1, 2, 3, 4}, {1, 2, 3, 5}, {1, 9}).outside, 1U);
}

TEST(CompareElements, ValuesOfSmallFloats) {
  const auto value = [](DType dtype, std::initializer_list<int> bytes) {
    std::vector<std::byte> data;
    for (const int byte : bytes) data.push_back(static_cast<std::byte>(byte));
    return decode_values(dtype, data).at(0);
  };
  EXPECT_EQ(value(DType::kF16, {0x00, 0x3c}), 1.0);
  EXPECT_EQ(value(DType::kF16, {0x01, 0x00}), 0x1p-24);
  EXPECT_EQ(value(DType::kF16, {0xff, 0xfb}), -65504.0);
  EXPECT_TRUE(std::isinf(value(DType::kF16, {0x00, 0x7c})));
  EXPECT_EQ(value(DType::kBF16, {0x80, 0xbf}), -1.0);
  EXPECT_EQ(value(DType::kF8E4M3, {0x7e}), 448.0);
  EXPECT_TRUE(std::isnan(value(DType::kF8E4M3, {0x7f})));
  EXPECT_EQ(value(DType::kF8E4M3, {0x01}), 0x1p-9);
  EXPECT_EQ(value(DType::kF8E5M2, {0x7b}), 57344.0);
  EXPECT_TRUE(std::isinf(value(DType::kF8E5M2, {0xfc})));
}

/// Every flat range that begins and ends at a multiple of the step has boxes of whole bytes.
TEST(CutStep, LeavesWholeBytes) {
  using Shape = std::vector<std::uint64_t>;
  EXPECT_EQ(cut_step(DType::kF32, Shape{3, 5}), 1U);
  EXPECT_EQ(cut_step(DType::kF4, Shape{3, 6}), 2U);
  EXPECT_EQ(cut_step(DType::kF4, Shape{4, 5}), 10U);
  EXPECT_EQ(cut_step(DType::kF6E2M3, Shape{8, 6}), 12U);
  EXPECT_EQ(cut_step(DType::kF6E2M3, Shape{8, 3}), 12U);
  EXPECT_EQ(cut_step(DType::kF4, Shape{0, 5}), 10U);
  EXPECT_EQ(cut_step(DType::kF4, Shape{4, 0}), 2U);
  EXPECT_EQ(cut_step(DType::kF4, Shape{}), 1U);
  std::size_t checked = 0;
  for (const DType dtype : {DType::kF4, DType::kF6E3M2}) {
    for (const Shape& shape : {Shape{24}, Shape{8, 5}, Shape{4, 3, 5}, Shape{2, 6, 7}, Shape{3, 4, 1, 3},
                               Shape{2, 2, 3}, Shape{1, 8, 9}, Shape{4, 1, 7, 1}}) {
      const std::uint64_t all = shard::elements_of(shape);
      const std::uint64_t step = cut_step(dtype, shape);
      ASSERT_EQ(all % step, 0U);
      for (std::uint64_t begin = 0; begin < all; begin += step) {
        for (std::uint64_t end = begin + step; end <= all; end += step) {
          for (const Box& box : shard::boxes_of_flat_range(shape, begin, end)) {
            EXPECT_EQ(shard::elements_of(box) * bits_of(dtype) % 8, 0U) << shard::to_string(box);
            EXPECT_EQ(shard::flat_index(shape, box.offset) * bits_of(dtype) % 8, 0U) << shard::to_string(box);
            ++checked;
          }
        }
      }
    }
  }
  EXPECT_GT(checked, 100U);
}

}  // namespace
}  // namespace cairn::conversion
