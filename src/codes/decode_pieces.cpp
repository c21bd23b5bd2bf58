#include "codes/decode_pieces.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "plan/strides.hpp"
#include "plan/tensor_map.hpp"
#include "shard/box_math.hpp"

namespace cairn::codes {

namespace {

[[noreturn]] void refuse(const plan::MemoryBox& want, std::string_view name) {
  throw base::internal_error(fmt::format("wanted box {} of '{}' and its memory of {} bytes do not match",
                                         shard::to_string(want.box), base::printable(name), want.bytes.size()));
}

/// The bytes that a memory box spans, from its first element to its last; refuses a box that does not fit the tensor.
std::uint64_t checked_bytes(const plan::MemoryBox& want, std::string_view name, DType dtype,
                            std::span<const std::uint64_t> shape) {
  if (!shard::fits(want.box, shape)) refuse(want, name);
  if (!want.strides.empty() && want.strides.size() != shape.size()) refuse(want, name);
  const auto span = plan::span_elements(want.box.shape, want.strides);
  const auto bits = span ? base::try_mul(*span, bits_of(dtype)) : std::nullopt;
  if (!bits || *bits % 8 != 0) refuse(want, name);
  return *bits / 8;
}

}  // namespace

void check_wanted(const plan::MemoryBox& want, std::string_view name, DType dtype,
                  std::span<const std::uint64_t> shape) {
  if (checked_bytes(want, name, dtype, shape) != want.bytes.size()) refuse(want, name);
}

void check_planned(const plan::MemoryBox& want, std::string_view name, DType dtype,
                   std::span<const std::uint64_t> shape) {
  if (checked_bytes(want, name, dtype, shape) != want.bytes.size() && !want.bytes.empty()) refuse(want, name);
}

namespace {

/// Cuts along `dimension`; the dimensions before it have length 1.
void cut(Box box, std::size_t dimension, std::uint64_t limit, const std::function<void(const Box&)>& visit) {
  if (shard::elements_of(box) <= limit) return visit(box);
  const std::uint64_t length = box.shape[dimension];
  const std::uint64_t first = box.offset[dimension];
  const std::uint64_t row_elements = shard::elements_of(box) / length;
  const std::uint64_t step = std::max<std::uint64_t>(limit / row_elements, 1);
  for (std::uint64_t at = 0; at < length; at += step) {
    box.offset[dimension] = first + at;
    box.shape[dimension] = std::min(step, length - at);
    if (row_elements <= limit) {
      visit(box);
    } else {
      cut(box, dimension + 1, limit, visit);
    }
  }
}

}  // namespace

void for_each_piece(const Box& box, std::uint64_t limit_elements, const std::function<void(const Box&)>& visit) {
  if (!shard::is_empty(box)) cut(box, 0, std::max<std::uint64_t>(limit_elements, 1), visit);
}

namespace {

/// A separate read costs some microseconds, as much as decoding 16 blocks of q8.
constexpr std::uint64_t kLargestGapBlocks = 16;

/// Pieces in the tensor's own coordinates, where blocks lie along the last dimension.
std::vector<Box> pieces_of_tensor(Box box, std::uint64_t block, std::uint64_t row_elements,
                                  std::uint64_t limit_blocks) {
  std::vector<Box> pieces;
  const std::uint64_t end = base::ceil_div(box.offset.back() + box.shape.back(), block);
  box.offset.back() /= block;
  box.shape.back() = end - box.offset.back();
  for_each_piece(box, limit_blocks, [&](Box piece) {
    piece.offset.back() *= block;
    piece.shape.back() = std::min(piece.shape.back() * block, row_elements - piece.offset.back());
    pieces.push_back(std::move(piece));
  });
  return pieces;
}

/// Pieces of the flattened tensor: ranges of blocks.
std::vector<Box> pieces_of_range(const quant::Shape& shape, const Box& box, std::uint64_t block,
                                 std::uint64_t limit_blocks) {
  std::vector<Box> pieces;
  const std::uint64_t elements = shard::elements_of(shape);
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  const auto flush = [&] {
    for (; begin < end; begin += std::min(limit_blocks, end - begin)) {
      const std::uint64_t last = std::min((begin + std::min(limit_blocks, end - begin)) * block, elements);
      pieces.push_back({{begin * block}, {last - begin * block}});
    }
  };
  const plan::Runs runs = plan::runs_of(DType::kU8, {0, 0, shard::whole(shape)}, box, box);  // byte = element
  plan::for_each_run(runs, [&](const plan::Run& run) {
    const std::uint64_t first = run.file_offset / block;
    if (first > end + kLargestGapBlocks || begin == end) {
      flush();
      begin = first;
    }
    end = base::ceil_div(run.file_offset + run.length_bytes, block);
  });
  flush();
  return pieces;
}

}  // namespace

std::vector<Box> decode_pieces(const quant::Codec& codec, const quant::Shape& shape, const Box& box,
                               std::uint64_t limit_elements) {
  if (shard::is_empty(box)) return {};
  const std::uint64_t block = codec.traits().block_elements;
  const std::uint64_t limit_blocks = std::max<std::uint64_t>(limit_elements / block, 1);
  if (codec.view(shape) != shape) return pieces_of_range(shape, box, block, limit_blocks);
  return pieces_of_tensor(box, block, shape.back(), limit_blocks);
}

std::vector<Box> boxes_of_piece(const quant::Codec& codec, const quant::Shape& shape, const Box& piece) {
  if (codec.view(shape) == shape) return {piece};
  return shard::boxes_of_flat_range(shape, piece.offset[0], piece.offset[0] + piece.shape[0]);
}

std::vector<plan::Run> runs_of_boxes(DType dtype, std::span<const Box> boxes, const plan::MemoryBox& memory) {
  std::vector<plan::Run> runs;
  if (plan::is_turned(memory)) return runs;
  std::uint64_t at = 0;
  for (const Box& box : boxes) {
    if (const auto common = shard::intersect(box, memory.box)) {
      plan::for_each_run(plan::runs_of(dtype, {0, at, box}, memory, *common), [&](const plan::Run& run) {
        const bool goes_on = !runs.empty() && runs.back().file_offset + runs.back().length_bytes == run.file_offset &&
                             runs.back().memory_offset + runs.back().length_bytes == run.memory_offset;
        if (goes_on) {
          runs.back().length_bytes += run.length_bytes;
        } else {
          runs.push_back(run);
        }
      });
    }
    at += shard::elements_of(box) * bits_of(dtype) / 8;
  }
  return runs;
}

}  // namespace cairn::codes
