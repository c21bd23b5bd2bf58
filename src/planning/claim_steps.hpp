// Who provides which part of each tensor: the work of one rank between two messages (catalog_exchange.hpp carries them).
//
// A rank claims its boxes at the homes of their tensors; a home (by catalog number) checks that the claims are the whole
// tensor and says who provides what. Both travel as pieces (16 bytes and 16 for each dimension). Rank-local and pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/pieces.hpp"
#include "planning/catalog_steps.hpp"
#include "planning/describe.hpp"

namespace cairn::checkpoint {

/// The rank that settles the claims on a tensor.
int home_of(std::uint32_t tensor, int ranks);

/// 1. The claims of a rank, to the homes. `tensor_of_shard`: catalog numbers, by MemoryBox::tensor.
comm::Mail claim_boxes(std::span<const plan::MemoryBox> mine, std::span<const std::uint32_t> tensor_of_shard, int rank,
                       int ranks);

/// 2. At a home: what each rank has to provide of its tensors. Throws Error(kState) for holes and overlaps
/// (plan/coverage.hpp).
comm::Mail settle_claims(const plan::PackedCatalog& catalog, const comm::Mail& claims, int rank);

/// 3. What homes told this rank: which pieces of its boxes it has to provide, by catalog number.
std::vector<plan::Piece> collect_pieces(const comm::Mail& provided, int rank);

}  // namespace cairn::checkpoint
