// Files of a save: the part of their layout that one rank needs.
//
// A header is made first by the rank that measures it (file number modulo ranks), then by each rank that writes a
// part of it. Each index is made by one rank. The work between messages is rank-local and pure; the collective
// functions send the messages.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/messages.hpp"
#include "plan/extents.hpp"
#include "plan/hf_layout.hpp"
#include "plan/pieces.hpp"

namespace cairn::planning {

/// The sizes of the headers that this rank measures: files rank, rank + ranks, ...
base::Bytes header_sizes_of_share(const plan::HfLayout& files, int rank, int ranks);

/// Header sizes of all files from the shares of all ranks.
std::vector<std::uint64_t> join_header_sizes(const plan::HfLayout& files, const comm::Messages& shares);

/// The indexes that this rank makes for rank 0, which writes them: those of sections rank - 1, rank - 1 + ranks, ...
/// Rank 0 collects, so it comes last, with sections ranks - 1, 2 * ranks - 1, ...
base::Bytes indexes_of_share(const plan::HfLayout& files, int rank, int ranks);

/// On rank 0: all indexes by file name, from the shares of all ranks.
std::map<std::string, std::string> join_indexes(comm::Messages shares);

/// Adds to a layout without content the headers that this rank writes parts of. `extents`: this rank's extents.
void add_headers(plan::FileLayout& layout, const plan::HfLayout& files, std::span<const plan::Extent> extents);

/// Places of only those tensors of which the rank provides pieces, in catalog order. Piece::tensor becomes the
/// tensor's number in this list.
format::StoredCheckpoint place_pieces(const plan::FileLayout& layout, const plan::HfLayout& files,
                                      std::span<plan::Piece> pieces);

/// Collective. The size of every file's header, each measured by one rank.
std::vector<std::uint64_t> exchange_header_sizes(comm::Communicator& communicator, const plan::HfLayout& files);

/// Collective. On rank 0 all indexes by file name, each made by one rank; elsewhere nothing.
std::map<std::string, std::string> exchange_indexes(comm::Communicator& communicator, const plan::HfLayout& files);

}  // namespace cairn::planning
