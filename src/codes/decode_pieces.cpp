#include "codes/decode_pieces.hpp"

#include <algorithm>
#include <limits>

#include "base/checked.hpp"
#include "codes/box_pieces.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {
namespace {

/// A read of its own costs some microseconds; so long takes decoding 16 blocks of q8.
constexpr std::uint64_t kLargestGapBlocks = 16;

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

/// The tensor's own coordinates: blocks lie along the last dimension.
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

/// The flattened tensor: ranges of blocks.
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
  const plan::RunSpace space{DType::kU8, shard::whole(shape), 0, box, box};  // bytes are elements
  plan::for_each_run(space, 0, kNoLimit, [&](const plan::Run& run) {
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

std::vector<plan::Run> runs_of_piece(const quant::Codec& codec, const quant::Shape& shape, const Box& piece,
                                     const Box& box) {
  std::vector<plan::Run> runs;
  constexpr std::uint64_t kWidth = sizeof(float);
  if (codec.view(shape) == shape) {
    const auto common = shard::intersect(piece, box);
    if (!common) return runs;
    plan::for_each_run({DType::kF32, piece, 0, box, *common}, 0, kNoLimit,
                       [&](const plan::Run& run) { runs.push_back(run); });
    return runs;
  }
  const std::uint64_t begin = piece.offset[0] * kWidth;
  const std::uint64_t end = begin + piece.shape[0] * kWidth;
  plan::for_each_run({DType::kF32, shard::whole(shape), 0, box, box}, begin, end, [&](const plan::Run& run) {
    runs.push_back({run.file_offset - begin, run.memory_offset, run.length_bytes});
  });
  return runs;
}

}  // namespace cairn::checkpoint
