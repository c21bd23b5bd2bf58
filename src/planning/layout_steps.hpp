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
#include "plan/pieces.hpp"
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

/// Adds to a layout without content the headers that the rank writes a part of.
void add_headers(plan::FileLayout& layout, const plan::HfLayout& files, std::span<const plan::Extent> extents);

/// Where the tensors lie that the rank provides pieces of: they alone, in catalog order. Piece::tensor becomes the number in
/// this list.
format::StoredCheckpoint place_pieces(const plan::FileLayout& layout, const plan::HfLayout& files,
                                      std::span<plan::Piece> pieces);

}  // namespace cairn::checkpoint
