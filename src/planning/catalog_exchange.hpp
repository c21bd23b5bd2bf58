// The messages between the steps of planning a save: catalog, file sizes, claims. Each function is collective; the work
// between messages is in catalog_steps.hpp, claim_steps.hpp and layout_steps.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "plan/hf_layout.hpp"
#include "planning/claim_steps.hpp"

namespace cairn::checkpoint {

/// Collective. The catalog, the same on every rank. Throws Error(kState), naming tensor and ranks, when ranks give one
/// tensor different dtypes or shapes.
plan::PackedCatalog exchange_catalog(comm::Communicator& communicator, const DescribedState& state);

/// Collective. The size of every file's header, each made by one rank.
std::vector<std::uint64_t> exchange_header_sizes(comm::Communicator& communicator, const plan::HfLayout& files);

/// Collective. On rank 0 the Hugging Face indexes by file name, each made by one rank; elsewhere nothing.
std::map<std::string, std::string> exchange_indexes(comm::Communicator& communicator, const plan::HfLayout& files);

/// Collective. The parts of this rank's boxes that it must provide; parts of all ranks together are every element once.
/// Throws Error(kState) for holes and overlaps (plan/coverage.hpp).
std::vector<plan::MemoryPart> exchange_claims(comm::Communicator& communicator, const plan::PackedCatalog& catalog,
                                              const NumberedBoxes& mine);

}  // namespace cairn::checkpoint
