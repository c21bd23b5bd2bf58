// Weights in another dtype: F16 and BF16 widened to F32, F32 rounded to them. Exact bits on every machine.
#pragma once

#include <cstddef>
#include <span>

#include "cairn/dtype.hpp"

namespace cairn::checkpoint {

/// F32 from BF16, F16 and F32; BF16 and F16 from F32.
bool can_cast(DType from, DType to);

/// Both spans hold the same number of elements, little-endian, at any address, and do not overlap. Widening is exact;
/// rounding is to nearest, ties to even, to infinity above the largest; NaN stays NaN, with its sign. Throws Error(kInternal) for a pair that
/// can_cast() denies or spans of other sizes.
void cast_values(DType from, std::span<const std::byte> values, DType to, std::span<std::byte> out);

}  // namespace cairn::checkpoint
