// The file layout of a save as one rank needs it: the work between two messages (catalog_exchange.hpp carries them).
//
// Headers are made where they are needed: once by the rank that measures them (file number modulo ranks), once by each
// rank that writes a part of them. Indexes are made by one rank each. Rank-local and pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "plan/extents.hpp"
#include "plan/hf_layout.hpp"
#include "plan/transfer.hpp"
#include "planning/catalog_steps.hpp"

namespace cairn::checkpoint {

/// The sizes of the headers that this rank measures: files rank, rank + ranks, ...
base::Bytes header_sizes_of_share(const plan::HfLayout& files, int rank, int ranks);

/// Header sizes of all files from the shares of all ranks.
std::vector<std::uint64_t> join_header_sizes(const plan::HfLayout& files, const comm::Mail& shares);

/// The indexes that this rank makes for rank 0, which writes them: of sections rank - 1, rank - 1 + ranks, ... (rank 0
/// collects, so it comes last).
base::Bytes indexes_of_share(const plan::HfLayout& files, int rank, int ranks);

/// On rank 0: all indexes by file name, from the shares of all ranks.
std::map<std::string, std::string> join_indexes(comm::Mail shares);

/// Adds to a layout without content what the rank needs: headers that it writes a part of, all places of the files that it
/// has extents in, and the places of the tensors that it provides parts of.
void add_needed_content(plan::FileLayout& layout, const plan::HfLayout& files, std::span<const plan::Extent> extents,
                        std::span<const plan::MemoryPart> parts);

}  // namespace cairn::checkpoint
