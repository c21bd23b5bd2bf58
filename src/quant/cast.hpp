// Conversion of values to another float dtype, by widening or rounding; the same bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cairn/dtype.hpp"

namespace cairn::quant {

/// F64, F32, F16 and BF16.
bool is_float(DType dtype);

/// Whether a load can make weights of one dtype from another: F32 from BF16, F16 and F32; BF16 and F16 from F32.
bool can_cast(DType from, DType to);

/// Whether cast_values() supports the pair: to F64, F32, F16, BF16, from these, F8_E4M3 and F8_E5M2; any dtype to
/// itself.
bool can_convert(DType from, DType to);

/// Converts values. Both spans hold the same number of elements, little-endian, at any address, and do not overlap.
/// Widening is exact. Rounding is to nearest, ties to even, in one step; values too large become infinity.
/// NaN stays NaN, with its sign. Throws Error(kInternal) if can_convert() is false, or for spans of the wrong size.
void cast_values(DType from, std::span<const std::byte> values, DType to, std::span<std::byte> out);

/// The number of finite values that cast_values() made infinite; spans as given to it.
std::uint64_t count_overflows(DType from, std::span<const std::byte> values, DType to, std::span<const std::byte> out);

}  // namespace cairn::quant
