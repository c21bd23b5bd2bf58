// The union of all ranks' tensors, and who provides which part of each, by two hash-partitioned exchanges.
//
// A tensor has a home rank: by a hash of its name first, by its catalog number once there is a catalog. A home merges
// and checks the few tensors it is home of, so that no rank ever handles all ranks' records. Claims and provisions
// travel as fixed-size binary records.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/describe.hpp"
#include "comm/communicator.hpp"
#include "plan/catalog.hpp"
#include "plan/transfer.hpp"

namespace cairn::checkpoint {

/// Collective. The catalog, the same on every rank. Throws Error(kState), naming tensor and ranks, when ranks give one
/// tensor different dtypes or shapes.
plan::Catalog exchange_catalog(comm::Communicator& communicator, std::span<const Source> state);

/// Collective. The parts of this rank's boxes that it must provide; parts of all ranks together are every element once.
/// Throws Error(kState) for holes and overlaps (plan/coverage.hpp).
std::vector<plan::MemoryPart> exchange_claims(comm::Communicator& communicator, const plan::Catalog& catalog,
                                              std::span<const Source> state, std::span<const LocalBox> boxes);

}  // namespace cairn::checkpoint
