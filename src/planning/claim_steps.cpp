#include "planning/claim_steps.hpp"

#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"

namespace cairn::planning {
namespace {

/// The holders of a box share its writing if every holder gets at least this many bytes.
constexpr std::uint64_t kShareBytes = 256ULL << 10;

/// Value of PieceHead::dimensions for a replica: `rank` then holds Replica::is_mixed, and Replica::holders follows.
constexpr std::uint32_t kIsReplica = 0xffffffff;

/// The head of a piece on the wire; offset and shape of its box follow. Little-endian host, one architecture per job.
struct PieceHead {
  std::uint32_t tensor = 0;
  std::uint32_t local = 0;
  std::uint32_t rank = 0;
  std::uint32_t dimensions = 0;
};

void put_piece(comm::MessageWriter& out, const plan::Piece& piece) {
  const PieceHead head{piece.tensor, piece.local, base::narrow<std::uint32_t>(piece.rank, "rank of a piece"),
                       base::narrow<std::uint32_t>(piece.box.shape.size(), "dimensions of a piece")};
  out.raw(&head, sizeof head);
  out.raw(piece.box.offset.data(), piece.box.offset.size() * sizeof(std::uint64_t));
  out.raw(piece.box.shape.data(), piece.box.shape.size() * sizeof(std::uint64_t));
}

void put_replica(comm::MessageWriter& out, const plan::Replica& replica) {
  const PieceHead head{replica.tensor, replica.local, replica.is_mixed ? 1U : 0U, kIsReplica};
  out.raw(&head, sizeof head);
  out.u64(replica.holders);
}

PieceHead get_head(comm::MessageReader& in) {
  PieceHead head;
  std::memcpy(&head, in.raw(sizeof head).data(), sizeof head);
  return head;
}

plan::Replica get_replica(comm::MessageReader& in, const PieceHead& head) {
  return {head.tensor, head.local, in.u64(), head.rank != 0};
}

/// Reads the piece after the head. Throws if the head names a different rank or too many dimensions.
plan::Piece get_piece(comm::MessageReader& in, const PieceHead& head, int rank) {
  if (head.dimensions > plan::kMaxDimensions || head.rank != static_cast<std::uint32_t>(rank)) {
    throw base::internal_error("a piece of tensor number " + std::to_string(head.tensor) + " has " +
                               std::to_string(head.dimensions) + " dimensions and is of rank " +
                               std::to_string(head.rank) + " where one of rank " + std::to_string(rank) +
                               " was to come");
  }
  const auto numbers = [&] {
    std::vector<std::uint64_t> values(head.dimensions);
    const auto bytes = in.raw(values.size() * sizeof(std::uint64_t));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  plan::Piece piece{head.tensor, head.local, rank, {}};
  piece.box.offset = numbers();
  piece.box.shape = numbers();
  return piece;
}

}  // namespace

int home_of(std::uint32_t tensor, int ranks) { return static_cast<int>(tensor % static_cast<std::uint32_t>(ranks)); }

comm::Messages claim_boxes(std::span<const plan::MemoryBox> mine, std::span<const std::uint32_t> tensor_of_shard,
                           int rank, int ranks) {
  comm::MessageWriter claims(static_cast<std::size_t>(ranks));
  for (std::uint32_t i = 0; i < mine.size(); ++i) {
    const std::uint32_t tensor = tensor_of_shard[mine[i].tensor];
    put_piece(claims, {tensor, i, rank, mine[i].box});
    claims.close(static_cast<std::size_t>(home_of(tensor, ranks)));
  }
  return claims.take();
}

comm::Messages settle_claims(const plan::PackedCatalog& catalog, const comm::Messages& claims, int rank) {
  const auto ranks = static_cast<std::uint32_t>(claims.size());
  std::unordered_map<std::uint32_t, std::vector<plan::Piece>> by_tensor;
  for (std::size_t from = 0; from < claims.size(); ++from) {
    for (comm::MessageReader in(claims[from]); !in.done();) {
      plan::Piece claim = get_piece(in, get_head(in), static_cast<int>(from));
      by_tensor[claim.tensor].push_back(std::move(claim));
    }
  }
  comm::MessageWriter provided(claims.size());
  for (auto tensor = static_cast<std::uint32_t>(rank); tensor < catalog.size(); tensor += ranks) {
    const plan::CatalogTensor what = catalog.at(tensor);
    const auto groups = plan::check_coverage(what, std::move(by_tensor[tensor]));
    const auto pieces = plan::provide(what, tensor, groups, kShareBytes, tensor);
    for (const plan::Piece& piece : pieces) {
      put_piece(provided, piece);
      provided.close(static_cast<std::size_t>(piece.rank));
    }
    const bool is_mixed = !pieces.empty() && pieces.front().rank != pieces.back().rank;
    for (const plan::ReplicaGroup& group : groups) {
      if (group.holders.size() == 1) continue;
      const std::uint64_t holders = plan::hash_of_holders(group);
      for (const plan::ReplicaGroup::Holder& holder : group.holders) {
        put_replica(provided, {tensor, holder.local, holders, is_mixed});
        provided.close(static_cast<std::size_t>(holder.rank));
      }
    }
  }
  return provided.take();
}

std::vector<plan::Piece> collect_pieces(const comm::Messages& provided, int rank) {
  std::vector<plan::Piece> pieces;
  for (const base::Bytes& bytes : provided) {
    for (comm::MessageReader in(bytes); !in.done();) {
      const PieceHead head = get_head(in);
      if (head.dimensions == kIsReplica) {
        static_cast<void>(get_replica(in, head));
      } else {
        pieces.push_back(get_piece(in, head, rank));
      }
    }
  }
  return pieces;
}

std::vector<plan::Replica> collect_replicas(const comm::Messages& provided) {
  std::vector<plan::Replica> replicas;
  for (const base::Bytes& bytes : provided) {
    for (comm::MessageReader in(bytes); !in.done();) {
      const PieceHead head = get_head(in);
      if (head.dimensions == kIsReplica) {
        replicas.push_back(get_replica(in, head));
      } else {
        static_cast<void>(in.raw(2 * sizeof(std::uint64_t) * head.dimensions));
      }
    }
  }
  return replicas;
}

SettledClaims exchange_claims(comm::Communicator& communicator, const plan::PackedCatalog& catalog,
                              std::span<const plan::MemoryBox> mine, std::span<const std::uint32_t> tensor_of_shard) {
  comm::Messages messages;
  comm::agree(communicator, "claim the state",
              [&] { messages = claim_boxes(mine, tensor_of_shard, communicator.rank(), communicator.size()); });
  messages = communicator.all_to_all(std::move(messages));
  comm::agree(communicator, "check that the state is whole",
              [&] { messages = settle_claims(catalog, messages, communicator.rank()); });
  messages = communicator.all_to_all(std::move(messages));
  SettledClaims settled;
  comm::agree(communicator, "collect the parts to provide", [&] {
    settled = {collect_pieces(messages, communicator.rank()), collect_replicas(messages)};
  });
  return settled;
}

}  // namespace cairn::planning
