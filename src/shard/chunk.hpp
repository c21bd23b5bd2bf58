// Cuts of one dimension over the positions of one or more mesh axes.
//
// A ChunkSpec is a pure rule: from the size of the dimension and the number of positions it gives the ordered ranges of
// a position. Most rules give one range; row maps (gate/up halves, Q|K|V columns, interleaved QKV) give several. The
// formulas come from PyTorch (torch.chunk), NumPy (array_split) and DTensor (_StridedShard).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/box.hpp"

namespace cairn::shard {

/// Elements [begin, end) of a dimension.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  friend bool operator==(const Range&, const Range&) = default;
};

std::uint64_t size_of(const std::vector<Range>& ranges);

enum class ChunkKind {
  kEven,      ///< n / ways each; an error if n is not a multiple of ways (Megatron)
  kTorch,     ///< ceil(n / ways) each, the last chunks short or empty (torch.chunk: DTensor, FSDP2)
  kBalanced,  ///< n / ways each, and one more for the first n % ways positions (numpy.array_split)
  kStrided,   ///< torch.chunk into ways * split_factor pieces; position i holds pieces i, i + ways, ... (_StridedShard)
  kExplicit,  ///< boundaries[i] .. boundaries[i + 1]
  kRows,      ///< the ordered ranges rows[i]
};

struct ChunkSpec {
  ChunkKind kind = ChunkKind::kEven;
  std::uint64_t unit = 1;          ///< elements that stay together (a head); must divide the dimension
  std::uint64_t split_factor = 1;  ///< for kStrided
  std::vector<std::uint64_t> boundaries;
  std::vector<std::vector<Range>> rows;

  // Row maps. With `parts` alone each part is cut separately; a position holds its pieces of part 0, part 1 ...
  std::vector<std::uint64_t> parts;  ///< sizes of the consecutive parts of the dimension (of one period, with `period`)
  std::uint64_t equal_parts = 1;     ///< instead of `parts`: number of parts of equal size
  std::uint64_t interleave = 0;      ///< number of groups in each part; positions get whole groups, ordered by group
  std::uint64_t period = 0;  ///< size of the dimension's equal periods; positions get whole periods, ordered by part

  // Scales of a block-quantised weight: the weight's dimension of `scaled` elements is cut, and every `block` elements
  // have one scale.
  std::uint64_t block = 0;
  std::uint64_t scaled = 0;
};

Range torch_chunk(std::uint64_t n, std::uint64_t ways, std::uint64_t at);
Range balanced_chunk(std::uint64_t n, std::uint64_t ways, std::uint64_t at);

/// The reason why `spec` cannot cut n elements over `ways` positions, as the end of a sentence; empty if it can.
std::string chunk_problem(const ChunkSpec& spec, std::uint64_t n, std::uint64_t ways);

/// The ordered, non-empty ranges of position `at`; adjacent ranges are merged. Empty: the position holds nothing.
/// Requires: chunk_problem is empty, at < ways.
std::vector<Range> chunk(const ChunkSpec& spec, std::uint64_t n, std::uint64_t ways, std::uint64_t at);

/// The different numbers of elements that positions hold, ascending. Same requirements as chunk().
std::vector<std::uint64_t> held_sizes(const ChunkSpec& spec, std::uint64_t n, std::uint64_t ways);

/// Maps `inner`, ranges of the elements that `outer` lists end to end, to ranges of the dimension itself.
std::vector<Range> compose(const std::vector<Range>& outer, const std::vector<Range>& inner);

// Converts ranges of each dimension to boxes, and flat ranges of a shard to boxes of the tensor.

/// The boxes of a shard that holds `ranges[d]` of every dimension d, dimension 0 slowest; none if a dimension has no
/// range. A scalar (no dimensions) has one box. Each combination of ranges is a box; the shard's memory is box after
/// box.
std::vector<Box> boxes_of(const std::vector<std::vector<Range>>& ranges);

/// Elements [begin, end) of a shard whose memory is `shard`, box after box, each row-major.
std::vector<Box> slice(const std::vector<Box>& shard, std::uint64_t begin, std::uint64_t end);

/// Joins adjacent boxes that together are one box with the same memory order.
void merge_neighbours(std::vector<Box>& boxes);

}  // namespace cairn::shard
