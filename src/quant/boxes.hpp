// Small helpers on shapes and boxes that all codecs need.
#pragma once

#include <string>

#include "quant/codec.hpp"

namespace cairn::quant {

/// The box that is the whole tensor.
[[nodiscard]] Box whole_box(const Shape& shape);

/// Throws Error(kInternal) when the product does not fit 64 bits.
[[nodiscard]] std::uint64_t elements_of(const Shape& shape);

/// True when `box` has the rank of `shape` and lies inside it.
[[nodiscard]] bool lies_in(const Box& box, const Shape& shape);

/// Bytes of a part's box.
[[nodiscard]] std::uint64_t bytes_of(const Part& part, const Box& box);

/// "[64, 32]".
[[nodiscard]] std::string shape_text(const Shape& shape);

}  // namespace cairn::quant
