// Values in another float dtype: widened, or rounded. Exact bits on every machine.
#pragma once

#include <cstddef>
#include <span>

#include "cairn/dtype.hpp"

namespace cairn::quant {

/// Of weights that are made from others: F32 from BF16, F16 and F32; BF16 and F16 from F32.
bool can_cast(DType from, DType to);

/// What cast_values() has: to F64, F32, F16 and BF16, from these and F8_E4M3 and F8_E5M2; and any dtype to itself.
bool can_convert(DType from, DType to);

/// Both spans hold the same number of elements, little-endian, at any address, and do not overlap. Widening is exact;
/// rounding is to nearest, ties to even, in one step, to infinity above the largest; NaN stays NaN, with its sign.
/// Throws Error(kInternal) for a pair that can_convert() denies or spans of other sizes.
void cast_values(DType from, std::span<const std::byte> values, DType to, std::span<std::byte> out);

}  // namespace cairn::quant
