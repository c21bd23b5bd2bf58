// Cairn's own two codecs for Adam moments. README.md has their guarantees, format and errors.
//
// One stored tensor "<name of m>@q8" (or @q4) of U8: block i, in storage order, has elements 128 i to 128 i + 127 of
// the flattened tensor. The stored shape is the tensor's with the last dimension counted in blocks (or [blocks] if rows
// are not whole blocks), followed by a block's number of bytes. Any box of whole blocks can be coded separately.
#pragma once

#include "cairn/error.hpp"
#include "quant/codec.hpp"

namespace cairn::quant {

/// "q8": 1.0625 bytes per value.
[[nodiscard]] const Codec& own_q8();

/// "q4": 0.594 bytes per value.
[[nodiscard]] const Codec& own_q4();

/// The error of encode() for a refused pair, at element `index` of a box.
[[nodiscard]] Error refused_pair(const Codec& codec, const Source& source, const Box& box, std::uint64_t index, float m,
                                 float v);

}  // namespace cairn::quant
