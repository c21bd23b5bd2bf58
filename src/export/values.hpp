// Elements as numbers, for comparing; nothing is ever computed from them and stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/dtype.hpp"

namespace cairn::checkpoint {

/// True for BOOL, integers, F16, BF16, F32, F64, F8_E4M3 and F8_E5M2.
bool has_values(DType dtype);

/// Decodes packed little-endian elements. Requires has_values(dtype) and a whole number of elements.
std::vector<double> decode_values(DType dtype, std::span<const std::byte> data);

}  // namespace cairn::checkpoint
