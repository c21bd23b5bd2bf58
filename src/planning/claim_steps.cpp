#include "planning/claim_steps.hpp"

#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/checked.hpp"
#include "cairn/error.hpp"
#include "plan/coverage.hpp"

namespace cairn::checkpoint {
namespace {

/// A replica group shares the writing of a box when every holder gets at least this much.
constexpr std::uint64_t kShareBytes = 256ULL << 10;

/// A piece on the wire, before offset and shape of its box. Little-endian host, one architecture per job.
struct PieceHead {
  std::uint32_t tensor = 0;
  std::uint32_t local = 0;
  std::uint32_t rank = 0;
  std::uint32_t dimensions = 0;
};

void put_piece(comm::MailWriter& out, const plan::Piece& piece) {
  const PieceHead head{piece.tensor, piece.local, base::narrow<std::uint32_t>(piece.rank, "rank of a piece"),
                       base::narrow<std::uint32_t>(piece.box.shape.size(), "dimensions of a piece")};
  out.raw(&head, sizeof head);
  out.raw(piece.box.offset.data(), piece.box.offset.size() * sizeof(std::uint64_t));
  out.raw(piece.box.shape.data(), piece.box.shape.size() * sizeof(std::uint64_t));
}

/// Throws when `rank` is not the piece's.
plan::Piece get_piece(comm::MailReader& in, int rank) {
  PieceHead head;
  std::memcpy(&head, in.raw(sizeof head).data(), sizeof head);
  if (head.dimensions > plan::kMaxDimensions || head.rank != static_cast<std::uint32_t>(rank)) {
    throw Error(ErrorKind::kInternal, "a piece of tensor number " + std::to_string(head.tensor) + " has " +
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

comm::Mail claim_boxes(std::span<const plan::MemoryBox> mine, std::span<const std::uint32_t> tensor_of_shard, int rank,
                       int ranks) {
  comm::MailWriter claims(static_cast<std::size_t>(ranks));
  for (std::uint32_t i = 0; i < mine.size(); ++i) {
    const std::uint32_t tensor = tensor_of_shard[mine[i].tensor];
    put_piece(claims, {tensor, i, rank, mine[i].box});
    claims.close(static_cast<std::size_t>(home_of(tensor, ranks)));
  }
  return claims.take();
}

comm::Mail settle_claims(const plan::PackedCatalog& catalog, const comm::Mail& claims, int rank) {
  const auto ranks = static_cast<std::uint32_t>(claims.size());
  std::unordered_map<std::uint32_t, std::vector<plan::Piece>> by_tensor;
  for (std::size_t from = 0; from < claims.size(); ++from) {
    for (comm::MailReader in(claims[from]); !in.done();) {
      plan::Piece claim = get_piece(in, static_cast<int>(from));
      by_tensor[claim.tensor].push_back(std::move(claim));
    }
  }
  comm::MailWriter provided(claims.size());
  for (auto tensor = static_cast<std::uint32_t>(rank); tensor < catalog.size(); tensor += ranks) {
    const auto pieces = plan::provide(catalog.at(tensor), std::move(by_tensor[tensor]), kShareBytes, tensor);
    for (const plan::Piece& piece : pieces) {
      put_piece(provided, piece);
      provided.close(static_cast<std::size_t>(piece.rank));
    }
  }
  return provided.take();
}

std::vector<plan::Piece> collect_pieces(const comm::Mail& provided, int rank) {
  std::vector<plan::Piece> pieces;
  for (const base::Bytes& bytes : provided) {
    for (comm::MailReader in(bytes); !in.done();) pieces.push_back(get_piece(in, rank));
  }
  return pieces;
}

}  // namespace cairn::checkpoint
