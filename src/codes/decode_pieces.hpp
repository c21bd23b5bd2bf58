// Boxes that are read and decoded: those that are wanted, in pieces of bounded size.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "cairn/box.hpp"
#include "cairn/dtype.hpp"
#include "plan/pieces.hpp"
#include "plan/runs.hpp"
#include "quant/codec.hpp"

namespace cairn::codes {

// What a reader is asked to fill: memory boxes by number of the stored tensor. Readers of every kind check them alike.

/// Throws Error(kInternal) for a box that does not fit its tensor or its memory.
void check_wanted(const plan::MemoryBox& want, std::string_view name, DType dtype,
                  std::span<const std::uint64_t> shape);
/// The same of a box that is planned: it may get its memory later.
void check_planned(const plan::MemoryBox& want, std::string_view name, DType dtype,
                   std::span<const std::uint64_t> shape);

// A box cut into boxes of bounded size that lie end to end in its memory. Pure.

/// Calls `visit` with pieces of at most `limit_elements` (at least 1) each, in row-major order; together they are the
/// box, and each is contiguous in the memory of a box without strides. Few of them: as many whole rows as fit. None for an empty box.
void for_each_piece(const Box& box, std::uint64_t limit_elements, const std::function<void(const Box&)>& visit);

// The boxes in which a box of coded moments is read and decoded. Pure.
//
// Codes of some codecs come in blocks, and of tensors whose rows are not whole blocks in the coordinates of the
// flattened tensor (quant::Codec::view): what must be decoded is then more than what is wanted.

/// Boxes of view(shape), each of which may be decoded, that together cover `box`, a box of the tensor. They are
/// disjoint, hold at most `limit_elements` or one block each, and nothing but what shares a block with an element of
/// the box; in a flattened tensor, gaps of a few blocks too, because many small reads cost more. None for an empty box.
std::vector<Box> decode_pieces(const quant::Codec& codec, const quant::Shape& shape, const Box& box,
                               std::uint64_t limit_elements);

/// The elements of a piece as boxes of the tensor, whose elements lie end to end in the piece.
std::vector<Box> boxes_of_piece(const quant::Codec& codec, const quant::Shape& shape, const Box& piece);

/// Where the elements of boxes, end to end, and of a memory box lie that both have, ascending: file_offset counts the
/// bytes of the boxes. None of a turned memory box (plan/tensor_map.hpp).
std::vector<plan::Run> runs_of_boxes(DType dtype, std::span<const Box> boxes, const plan::MemoryBox& memory);

}  // namespace cairn::codes
