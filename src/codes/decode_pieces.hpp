// The boxes in which a box of coded moments is read and decoded. Pure.
//
// Codes of some codecs come in blocks, and of tensors whose rows are no whole blocks in the coordinates of the flattened
// tensor (quant::Codec::view): what must be decoded is then more than what is wanted.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/box.hpp"
#include "plan/runs.hpp"
#include "quant/codec.hpp"

namespace cairn::checkpoint {

/// Boxes of view(shape), each of which may be decoded, that together cover `box`, a box of the tensor. They are disjoint, hold
/// at most `limit_elements` or one block each, and nothing but what shares a block with an element of the box; in a
/// flattened tensor, gaps of a few blocks too, because many small reads cost more. None for an empty box.
std::vector<Box> decode_pieces(const quant::Codec& codec, const quant::Shape& shape, const Box& box,
                               std::uint64_t limit_elements);

/// Where the elements that `piece` and `box` share lie, ascending: file_offset and memory_offset are byte offsets of F32
/// elements in the memory of the piece and of the box.
std::vector<plan::Run> runs_of_piece(const quant::Codec& codec, const quant::Shape& shape, const Box& piece,
                                     const Box& box);

}  // namespace cairn::checkpoint
