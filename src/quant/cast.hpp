// Values in another float dtype: widened, or rounded. Exact bits on every machine.
#pragma once

#include <cstddef>
#include <span>

#include "cairn/dtype.hpp"

namespace cairn::quant {

/// Whether a load may make weights in one dtype from weights in another: F32 from BF16, F16 and F32; BF16 and F16 from
/// F32.
bool can_cast(DType from, DType to);

/// Whether cast_values() supports the pair: to F64, F32, F16 and BF16, from these and F8_E4M3 and F8_E5M2; any dtype to
/// itself.
bool can_convert(DType from, DType to);

/// Converts values. Both spans hold the same number of elements, little-endian, at any address, and do not overlap.
/// Widening is exact. Rounding is to nearest, ties to even, in one step; values above the largest become infinite; NaN
/// stays NaN, with its sign. Throws Error(kInternal) for a pair without can_convert(), or spans of the wrong size.
void cast_values(DType from, std::span<const std::byte> values, DType to, std::span<std::byte> out);

}  // namespace cairn::quant
