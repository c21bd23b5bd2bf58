// Cairn's own two codecs for Adam moments. What they keep, their format and their errors: README.md.
//
// One stored tensor "<name of m>@q8" (or @q4): U8 of shape [blocks, bytes of a block], block i for elements 128 i to
// 128 i + 127 of the flattened tensor. Any run of whole blocks is coded for itself.
#pragma once

#include "cairn/error.hpp"
#include "quant/codec.hpp"

namespace cairn::quant {

/// "q8": 1.0625 bytes a value.
[[nodiscard]] const Codec& own_q8();

/// "q4": 0.594 bytes a value.
[[nodiscard]] const Codec& own_q4();

/// What encode() throws for a pair that it refuses, the element `index` of the flattened tensor; and decode() for a block.
[[nodiscard]] Error refused_pair(const Codec& codec, const Source& source, std::uint64_t index, float m, float v);
[[nodiscard]] Error damaged_block(const Codec& codec, const Source& source, std::uint64_t block);

}  // namespace cairn::quant
