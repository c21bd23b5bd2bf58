// Counts values that are NaN or infinite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/dtype.hpp"

namespace cairn::quant {

struct NonFiniteCount {
  std::uint64_t nans = 0;
  std::uint64_t infinities = 0;

  [[nodiscard]] bool any() const { return nans != 0 || infinities != 0; }
  NonFiniteCount& operator+=(const NonFiniteCount& other) {
    nans += other.nans;
    infinities += other.infinities;
    return *this;
  }
};

/// Whether values of the dtype can be NaN: floats of 8 bits and more, and C64, whose two parts count as values.
bool can_be_nan(DType dtype);

/// Size of a value in bytes; for C64, size of a part. Requires: can_be_nan().
std::uint64_t value_bytes(DType dtype);

/// Counts NaN and infinite values. `values` holds whole values, little-endian, at any address. Runs at the speed of
/// memory, except near values that are not finite. Requires: can_be_nan().
NonFiniteCount count_non_finite(DType dtype, std::span<const std::byte> values);

}  // namespace cairn::quant
