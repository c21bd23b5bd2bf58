// From ranges per dimension to boxes, and from flat ranges of a shard to boxes of the tensor.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/box.hpp"
#include "shard/chunk.hpp"

namespace cairn::shard {

/// The boxes of a shard that holds `ranges[d]` of every dimension d, dimension 0 slowest; none when a dimension has no
/// range. A scalar (no dimensions) gives its one box. Several ranges of a dimension other than the first give boxes of
/// their own: the shard's memory is box after box.
std::vector<Box> boxes_of(const std::vector<std::vector<Range>>& ranges);

/// Elements [begin, end) of a shard whose memory is `shard`, box after box, each row-major.
std::vector<Box> slice(const std::vector<Box>& shard, std::uint64_t begin, std::uint64_t end);

/// Joins neighbours that together are one box with the same memory order.
void merge_neighbours(std::vector<Box>& boxes);

}  // namespace cairn::shard
