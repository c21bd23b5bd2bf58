// Compares elements: integers exactly, floats by value, every other dtype bit by bit. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "cairn/dtype.hpp"

namespace cairn::conversion {

// Elements as numbers, only for comparison: numbers computed here are never stored.

/// Whether elements can be compared as numbers: true for BOOL, integers, F16, BF16, F32, F64, F8_E4M3 and F8_E5M2.
bool has_values(DType dtype);

/// Decodes packed little-endian floats. Requires F16, BF16, F32, F64, F8_E4M3 or F8_E5M2 and whole elements.
std::vector<double> decode_values(DType dtype, std::span<const std::byte> data);

/// The way to compare the elements of a tensor, which decides the meaning of a tolerance.
enum class Rule {
  kIntegers,  ///< both dtypes are integers
  kFloats,    ///< values of floats; of a float and an integer
  kBits,      ///< BOOL, and dtypes without values
};
/// Requires: the dtypes are equal, or both have values.
Rule rule_of(DType a, DType b);
std::string_view name_of(Rule rule);  ///< "integers", "floats", "bits"

/// Values a and b are close when they are equal, both NaN, or
///   floats:   |a - b| <= absolute + relative * |b|
///   integers: |a - b| <= absolute, computed exactly; a relative tolerance would hide differences of large counters
/// Elements that are compared by their bits are close only if these are equal. If `relative` and `absolute` are 0, all
/// bits must be equal.
struct Tolerance {
  double relative = 0;
  long double absolute = 0;  ///< its 64 bits hold every difference of integers
  [[nodiscard]] bool is_none() const { return relative == 0 && absolute == 0; }
};

/// |a - b| of two elements: exact between integers (above 2^64 - 1: 2^64 - 1), otherwise rounded to F64 (above its
/// largest number: that number), with infinity for an infinite element and for NaN against a number.
using Difference = std::variant<std::uint64_t, double>;

/// The differences found in some elements; those of several pieces can be summed.
struct Findings {
  std::uint64_t differing = 0;  ///< by bits, or by value if the dtypes differ
  std::uint64_t outside = 0;    ///< differing elements that are not close
  std::uint64_t largest = 0;    ///< the largest difference as a number that has the same order; 0 without values
};

/// The difference that Findings::largest stands for. Requires: dtypes with values.
Difference difference_of(std::uint64_t largest, DType a, DType b);

/// The same elements of two tensors, packed, little-endian, in whole bytes.
struct Elements {
  DType dtype_a;
  DType dtype_b;
  std::span<const std::byte> bytes_a;
  std::span<const std::byte> bytes_b;
};

/// Requires: the dtypes are equal, or both have values. Elements of fewer than 8 bits are packed from the lowest bit of
/// the first byte on.
Findings compare_elements(const Elements& elements, const Tolerance& tolerance);

}  // namespace cairn::conversion
