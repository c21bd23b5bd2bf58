// Who provides which part of each tensor: the work of one rank between two messages (catalog_exchange.hpp carries them).
//
// A rank claims its boxes at the homes of their tensors; a home (by catalog number) checks that the claims are the whole
// tensor and says who provides what. Claims and provisions travel as fixed-size binary records. Rank-local and pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/transfer.hpp"
#include "planning/catalog_steps.hpp"
#include "planning/describe.hpp"

namespace cairn::checkpoint {

/// A rank's boxes with the catalog numbers of their tensors.
struct NumberedBoxes {
  std::span<const LocalBox> boxes;
  std::span<const std::uint32_t> tensor_of_shard;  ///< by LocalBox::shard
};

/// The rank that settles the claims on a tensor.
int home_of(std::uint32_t tensor, int ranks);

/// 1. The claims of a rank, to the homes.
comm::Mail claim_boxes(const NumberedBoxes& mine, int ranks);

/// 2. At a home: what each rank has to provide of its tensors. Throws Error(kState) for holes and overlaps
/// (plan/coverage.hpp).
comm::Mail settle_claims(const plan::PackedCatalog& catalog, const comm::Mail& claims, int rank);

/// 3. What homes told this rank: parts of its boxes.
std::vector<plan::MemoryPart> collect_parts(const comm::Mail& provided, const NumberedBoxes& mine);

}  // namespace cairn::checkpoint
