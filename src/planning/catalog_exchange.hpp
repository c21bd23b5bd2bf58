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

/// Collective. The pieces of this rank's boxes that it must provide, by catalog number; those of all ranks together are
/// every element once. `tensor_of_shard`: catalog numbers, by MemoryBox::tensor. Throws Error(kState) for holes and overlaps (plan/coverage.hpp).
std::vector<plan::Piece> exchange_claims(comm::Communicator& communicator, const plan::PackedCatalog& catalog,
                                         std::span<const plan::MemoryBox> mine,
                                         std::span<const std::uint32_t> tensor_of_shard);

}  // namespace cairn::checkpoint
