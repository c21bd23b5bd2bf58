// Small helpers on shapes that all codecs need, beside those of shard/box_math.hpp.
#pragma once

#include <cstdint>

#include "quant/codec.hpp"

namespace cairn::quant {

/// Throws Error(kInternal) when the product does not fit 64 bits.
[[nodiscard]] std::uint64_t elements_of(const Shape& shape);

/// Bytes of a part's box.
[[nodiscard]] std::uint64_t bytes_of(const Part& part, const Box& box);

/// The position in the tensor of the element `index` (row-major) of a box.
[[nodiscard]] Shape position_of(const Box& box, std::uint64_t index);

}  // namespace cairn::quant
