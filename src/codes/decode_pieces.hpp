// Boxes to be read and decoded: the wanted boxes, in pieces of bounded size.
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

// Checks that all readers make on the memory boxes that they fill. `name`, `dtype` and `shape` describe the tensor.

/// Throws Error(kInternal) for a box that does not fit its tensor or its memory.
void check_wanted(const plan::MemoryBox& want, std::string_view name, DType dtype,
                  std::span<const std::uint64_t> shape);
/// As check_wanted(), for a planned box, which may get its memory later.
void check_planned(const plan::MemoryBox& want, std::string_view name, DType dtype,
                   std::span<const std::uint64_t> shape);

// A box cut into boxes of bounded size that lie end to end in its memory. Pure.

/// Calls `visit` with pieces of at most `limit_elements` (at least 1) each, in row-major order;
/// together they are the box, and each is contiguous in the memory of a box without strides. There are few pieces: each
/// has as many whole rows as fit. An empty box has no pieces.
void for_each_piece(const Box& box, std::uint64_t limit_elements, const std::function<void(const Box&)>& visit);

// The boxes in which a box of coded moments is read and decoded. Pure.
//
// Some codecs code blocks, so more elements may have to be decoded than are wanted. If rows are not whole blocks, these
// codecs use coordinates of the flattened tensor (quant::Codec::view).

/// Disjoint boxes of view(shape) that cover `box`, a box of the tensor, and can be decoded separately. Each holds at
/// most `limit_elements` or one block, and only blocks with an element of the box; in a flattened tensor also gaps of a
/// few blocks, because many small reads cost more. An empty box gives no boxes.
std::vector<Box> decode_pieces(const quant::Codec& codec, const quant::Shape& shape, const Box& box,
                               std::uint64_t limit_elements);

/// The elements of a piece as boxes of the tensor, end to end in the piece.
std::vector<Box> boxes_of_piece(const quant::Codec& codec, const quant::Shape& shape, const Box& piece);

/// Places of the elements that a memory box shares with boxes that lie end to end, ascending: file_offset counts the
/// bytes of these boxes. Empty for a turned memory box (plan/tensor_map.hpp).
std::vector<plan::Run> runs_of_boxes(DType dtype, std::span<const Box> boxes, const plan::MemoryBox& memory);

}  // namespace cairn::codes
