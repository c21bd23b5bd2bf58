// Files and claims of a save: the work of one rank between messages, and the messages.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "plan/coverage.hpp"
#include "plan/extents.hpp"
#include "plan/hf_layout.hpp"
#include "plan/pieces.hpp"
#include "planning/catalog_steps.hpp"
#include "planning/describe.hpp"

namespace cairn::planning {

// The part of a save's file layout that one rank needs: the work between two messages,
// which the functions at the end send.
//
// Ranks make the headers that they need: first the rank that measures a header (file number modulo ranks),
// then each rank that writes a part of it. Each index is made by one rank. Rank-local and pure.

/// The sizes of the headers that this rank measures: files rank, rank + ranks, ...
base::Bytes header_sizes_of_share(const plan::HfLayout& files, int rank, int ranks);

/// Header sizes of all files from the shares of all ranks.
std::vector<std::uint64_t> join_header_sizes(const plan::HfLayout& files, const comm::Messages& shares);

/// The indexes that this rank makes for rank 0, which writes them: those of sections rank - 1, rank - 1 + ranks, ...
/// (rank 0 collects, so it comes last).
base::Bytes indexes_of_share(const plan::HfLayout& files, int rank, int ranks);

/// On rank 0: all indexes by file name, from the shares of all ranks.
std::map<std::string, std::string> join_indexes(comm::Messages shares);

/// Adds the headers of which the rank writes a part to a layout without content.
void add_headers(plan::FileLayout& layout, const plan::HfLayout& files, std::span<const plan::Extent> extents);

/// Places of only those tensors of which the rank provides pieces, in catalog order.
/// Piece::tensor becomes the number in this list.
format::StoredCheckpoint place_pieces(const plan::FileLayout& layout, const plan::HfLayout& files,
                                      std::span<plan::Piece> pieces);

// Providers of the parts of each tensor: the work of one rank between two messages,
// which the functions at the end send.
//
// A rank claims its boxes at the homes of their tensors. A home (by catalog number) checks that the claims cover
// the whole tensor, and assigns its parts to ranks. Claims and parts travel as pieces (16 bytes, and 16 for each
// dimension). Rank-local and pure.

/// The rank that settles the claims on a tensor.
int home_of(std::uint32_t tensor, int ranks);

/// 1. Sends the claims of a rank to the homes. `tensor_of_shard`: catalog numbers, by MemoryBox::tensor.
comm::Messages claim_boxes(std::span<const plan::MemoryBox> mine, std::span<const std::uint32_t> tensor_of_shard,
                           int rank, int ranks);

/// 2. At a home: the parts of its tensors that each rank has to provide, and the boxes that other ranks also hold.
/// Throws Error(kState) for holes and overlaps (plan/coverage.hpp).
comm::Messages settle_claims(const plan::PackedCatalog& catalog, const comm::Messages& claims, int rank);

/// 3. The pieces of its boxes that this rank has to provide, as the homes decided, by catalog number.
std::vector<plan::Piece> collect_pieces(const comm::Messages& provided, int rank);
/// The replicas among its boxes, in an order that is the same on all ranks that hold some.
std::vector<plan::Replica> collect_replicas(const comm::Messages& provided);

// The messages between the steps of planning a save: catalog, file sizes, claims. Each function is collective; the work
// between messages is in catalog_steps.hpp and in the functions above.

/// Collective. The catalog, the same on every rank. Throws Error(kState), naming tensor and ranks, if ranks give a
/// tensor different dtypes or shapes.
plan::PackedCatalog exchange_catalog(comm::Communicator& communicator, const DescribedState& state);

/// Collective. The size of every file's header, each made by one rank.
std::vector<std::uint64_t> exchange_header_sizes(comm::Communicator& communicator, const plan::HfLayout& files);

/// Collective. On rank 0 the Hugging Face indexes by file name, each made by one rank; elsewhere nothing.
std::map<std::string, std::string> exchange_indexes(comm::Communicator& communicator, const plan::HfLayout& files);

/// The settled claims of this rank, by catalog number.
struct SettledClaims {
  std::vector<plan::Piece> pieces;      ///< pieces to provide; all ranks together provide every element once
  std::vector<plan::Replica> replicas;  ///< as from collect_replicas()
};

/// Collective. `tensor_of_shard`: catalog numbers, by MemoryBox::tensor. Throws Error(kState) for holes and overlaps
/// (plan/coverage.hpp).
SettledClaims exchange_claims(comm::Communicator& communicator, const plan::PackedCatalog& catalog,
                              std::span<const plan::MemoryBox> mine, std::span<const std::uint32_t> tensor_of_shard);

}  // namespace cairn::planning
