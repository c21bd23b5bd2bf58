// Cairn's own two codecs for Adam moments. What they keep, their format and their errors: README.md.
//
// One stored tensor "<name of m>@q8" (or @q4) of U8: block i, in storage order, for elements 128 i to 128 i + 127 of
// the flattened tensor. Its shape is the tensor's with the last dimension counted in blocks, or [blocks] where a row is
// not whole blocks; and behind that the bytes of a block. Any box of whole blocks is coded for itself.
#pragma once

#include "cairn/error.hpp"
#include "quant/codec.hpp"

namespace cairn::quant {

/// "q8": 1.0625 bytes a value.
[[nodiscard]] const Codec& own_q8();

/// "q4": 0.594 bytes a value.
[[nodiscard]] const Codec& own_q4();

/// What encode() throws for a pair that it refuses, the element `index` of a box; and decode() for the block that
/// begins there.
[[nodiscard]] Error refused_pair(const Codec& codec, const Source& source, const Box& box, std::uint64_t index, float m,
                                 float v);
[[nodiscard]] Error damaged_block(const Codec& codec, const Source& source, const Box& box, std::uint64_t index);

}  // namespace cairn::quant
