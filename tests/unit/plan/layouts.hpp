// Random tensors and random ways to hold them: grids, uneven cuts, replicas, flat ranges, empty shards, pinwheels.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/box.hpp"
#include "plan/coverage.hpp"
#include "seeded.hpp"

namespace cairn::plan_test {

/// 0 to `max_rank` dimensions of 1 to `max_size`, sometimes one dimension of 0.
std::vector<std::uint64_t> random_shape(Seeded& random, std::uint64_t max_rank, std::uint64_t max_size);

/// Disjoint non-empty boxes that cover the (non-empty) shape.
std::vector<Box> random_partition(Seeded& random, const std::vector<std::uint64_t>& shape);

/// The boxes of the tensor on `ranks` ranks, with every element on at least one:
/// partition boxes assigned with replicas, flat ranges, or everything everywhere; also some empty boxes.
std::vector<plan::Piece> random_claims(Seeded& random, const std::vector<std::uint64_t>& shape, int ranks);

}  // namespace cairn::plan_test
