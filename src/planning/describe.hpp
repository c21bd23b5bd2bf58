// This rank's part of a save or a load: checked once, then turned into numbered memory boxes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/checkpoint.hpp"
#include "plan/pieces.hpp"

namespace cairn::planning {

/// Name of the blob of a rank: "rank-00003" for rank 3. The blob is a U8 tensor of section "rank_state".
std::string rank_blob_name(int rank);

/// Throws Error(kUsage), naming the tensor, for: a section that is not UTF-8 or, of a source, one that
/// section_problem() refuses; a name that is empty, not UTF-8 or "__metadata__", more than 8 dimensions, an unknown
/// dtype, a size that overflows, a box that does not fit, a sub-byte tensor cut inside a byte, placements that do not
/// match the boxes, strides that plan/strides.hpp refuses, gaps between sub-byte elements, memory whose size is not
/// that of the boxes (Source::data_bytes), a null pointer to data, a pointer that is said to be a device's but is not.
void check_shards(std::span<const Source> state);
void check_shards(std::span<const Target> targets);

/// Throws Error(kUsage), naming the tensor, if this rank gives an element twice (by shards with the same name or by
/// boxes of one shard: one of the two values would be lost), or if shards with the same name differ in dtype or shape.
/// Shards of one tensor with disjoint boxes are legal. Requires: check_shards().
void check_distinct(std::span<const Source> state);
/// As above, for several targets with the same name, dtype and shape. Boxes of any other target may overlap,
/// like parts of a grid with ghost cells, since each box has its own memory.
void check_distinct(std::span<const Target* const> targets);

/// The boxes in memory, numbered; MemoryBox::tensor is the number of the shard. Requires: check_shards().
std::vector<plan::MemoryBox> memory_boxes(std::span<const Source> state);
/// Appends the boxes of one shard, as memory_boxes() does; the shard gets the number `shard`.
void add_boxes(const Source& source, std::uint32_t shard, std::vector<plan::MemoryBox>& out);
void add_boxes(const Target& target, std::uint32_t shard, std::vector<plan::MemoryBox>& out);

/// This rank's inputs of a plan as bytes: if these bytes are unchanged on all ranks, the last plan is still valid.
base::Bytes describe(std::span<const Source> state, const Options& options);

}  // namespace cairn::planning
