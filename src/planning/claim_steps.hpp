// Claims of a save: the parts of each tensor that each rank provides.
//
// A rank claims its boxes at the homes of their tensors. A tensor's home, chosen by catalog number, checks that the
// claims cover the whole tensor, and assigns the parts to ranks. Claims and parts travel as pieces (16 bytes, and 16
// for each dimension). The numbered functions are rank-local and pure; exchange_claims() sends the messages.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/messages.hpp"
#include "plan/catalog.hpp"
#include "plan/coverage.hpp"
#include "plan/pieces.hpp"

namespace cairn::planning {

/// The rank that settles the claims on a tensor.
int home_of(std::uint32_t tensor, int ranks);

/// 1. Messages with the claims of a rank, to the homes. `tensor_of_shard`: catalog numbers, by MemoryBox::tensor.
comm::Messages claim_boxes(std::span<const plan::MemoryBox> mine, std::span<const std::uint32_t> tensor_of_shard,
                           int rank, int ranks);

/// 2. At a home: the parts of the home's tensors that each rank has to provide, and each rank's boxes that other ranks
/// also hold. Throws as plan::provide() does.
comm::Messages settle_claims(const plan::PackedCatalog& catalog, const comm::Messages& claims, int rank);

/// 3. The pieces of this rank's boxes that it has to provide, as the homes decided. Piece::tensor: catalog number.
std::vector<plan::Piece> collect_pieces(const comm::Messages& provided, int rank);
/// The replicas among this rank's boxes. Replicas that two ranks share are in the same order on both.
std::vector<plan::Replica> collect_replicas(const comm::Messages& provided);

/// The settled claims of this rank; tensors are catalog numbers.
struct SettledClaims {
  std::vector<plan::Piece> pieces;      ///< pieces to provide; all ranks together provide every element once
  std::vector<plan::Replica> replicas;  ///< as from collect_replicas()
};

/// Collective. `tensor_of_shard`: catalog numbers, by MemoryBox::tensor. Throws as plan::provide() does.
SettledClaims exchange_claims(comm::Communicator& communicator, const plan::PackedCatalog& catalog,
                              std::span<const plan::MemoryBox> mine, std::span<const std::uint32_t> tensor_of_shard);

}  // namespace cairn::planning
