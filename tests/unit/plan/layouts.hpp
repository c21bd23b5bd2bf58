// Random tensors and random ways to hold them: grids, uneven cuts, replicas, flat ranges, empty shards.
#pragma once

#include <cstdint>
#include <vector>

#include "cairn/box.hpp"
#include "plan/coverage.hpp"
#include "seeded.hpp"

namespace cairn::plan_test {

/// 0 to `max_rank` dimensions of size 1 to `max_size`, rarely 0.
std::vector<std::uint64_t> random_shape(Seeded& random, std::uint64_t max_rank, std::uint64_t max_size);

/// Disjoint non-empty boxes that cover the (non-empty) shape.
std::vector<Box> random_partition(Seeded& random, const std::vector<std::uint64_t>& shape);

/// The boxes of the tensor on `ranks` ranks: each box of a random partition is on one rank, or on several;
/// also some empty boxes.
std::vector<plan::Piece> random_claims(Seeded& random, const std::vector<std::uint64_t>& shape, int ranks);

}  // namespace cairn::plan_test
