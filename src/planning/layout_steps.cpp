#include "planning/layout_steps.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "plan/coverage.hpp"

namespace cairn::planning {

base::Bytes header_sizes_of_share(const plan::HfLayout& files, int rank, int ranks) {
  base::ByteWriter out;
  const auto step = static_cast<std::uint64_t>(ranks);
  for (auto file = static_cast<std::uint64_t>(rank); file < files.files(); file += step) {
    out.u64(files.header_of(static_cast<std::uint32_t>(file)).bytes.size());
  }
  return out.take();
}

std::vector<std::uint64_t> join_header_sizes(const plan::HfLayout& files, const comm::Messages& shares) {
  std::vector<std::uint64_t> sizes(files.files());
  for (std::size_t rank = 0; rank < shares.size() && rank < sizes.size(); ++rank) {
    base::ByteReader in(shares[rank]);
    for (std::size_t file = rank; file < sizes.size(); file += shares.size()) sizes[file] = in.u64();
    if (!in.done()) throw base::internal_error("more header sizes came than there are files");
  }
  return sizes;
}

base::Bytes indexes_of_share(const plan::HfLayout& files, int rank, int ranks) {
  base::ByteWriter out;
  const auto world = static_cast<std::size_t>(ranks);
  for (std::size_t section = (static_cast<std::size_t>(rank) + world - 1) % world; section < files.sections();
       section += world) {
    const plan::IndexFile index = files.index_of(section);
    if (index.name.empty()) continue;
    out.text(index.name);
    out.text(index.text);
  }
  return out.take();
}

std::map<std::string, std::string> join_indexes(comm::Messages shares) {
  std::map<std::string, std::string> indexes;
  for (base::Bytes& share : shares) {
    comm::MessageReader in(share);
    while (!in.done()) {
      const std::string_view name = in.text();
      indexes.emplace(name, in.text());
    }
    share = {};  // indexes are long: each share is freed once it is copied
  }
  return indexes;
}

void add_headers(plan::FileLayout& layout, const plan::HfLayout& files, std::span<const plan::Extent> extents) {
  for (const plan::Extent& extent : extents) {
    const std::uint64_t header_bytes = layout.files[extent.file].size_bytes - files.data_bytes_of(extent.file);
    if (extent.begin >= header_bytes || !layout.files[extent.file].header.empty()) continue;
    files.add_header(layout, extent.file, files.header_of(extent.file));
  }
}

format::StoredCheckpoint place_pieces(const plan::FileLayout& layout, const plan::HfLayout& files,
                                      std::span<plan::Piece> pieces) {
  std::vector<std::uint32_t> tensors;
  for (const plan::Piece& piece : pieces) tensors.push_back(piece.tensor);
  std::sort(tensors.begin(), tensors.end());
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  for (plan::Piece& piece : pieces) {
    const auto at = std::lower_bound(tensors.begin(), tensors.end(), piece.tensor);
    piece.tensor = static_cast<std::uint32_t>(at - tensors.begin());
  }
  return files.places_of(layout, tensors);
}

namespace {

/// Replicas share the writing of a box if every holder gets at least this many bytes.
constexpr std::uint64_t kShareBytes = 256ULL << 10;

/// Value of PieceHead::dimensions for a replica: `rank` then holds Replica::is_mixed, and Replica::holders follows.
constexpr std::uint32_t kIsReplica = 0xffffffff;

/// A piece on the wire, before offset and shape of its box. Little-endian host, one architecture per job.
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

plan::PackedCatalog exchange_catalog(comm::Communicator& communicator, const DescribedState& state) {
  comm::Messages messages;
  comm::agree(communicator, "describe the state",
              [&] { messages = describe_to_homes(state, communicator.rank(), communicator.size()); });
  messages = communicator.all_to_all(std::move(messages));
  std::vector<plan::CatalogTensor> homed;
  base::Bytes mine;
  comm::agree(communicator, "merge the catalog", [&] {
    homed = merge_described(messages);
    mine = sample_names(homed, communicator.rank(), communicator.size());
  });
  messages = communicator.all_gather(mine);
  comm::agree(communicator, "spread the catalog", [&] { messages = spread_in_order(homed, messages); });
  messages = communicator.all_to_all(std::move(messages));
  comm::agree(communicator, "order the catalog", [&] { mine = pack_stretch(messages); });
  messages = communicator.all_gather(mine);
  plan::PackedCatalog catalog;
  comm::agree(communicator, "collect the catalog", [&] { catalog = plan::PackedCatalog(messages); });
  return catalog;
}

std::vector<std::uint64_t> exchange_header_sizes(comm::Communicator& communicator, const plan::HfLayout& files) {
  base::Bytes mine;
  comm::agree(communicator, "measure the headers",
              [&] { mine = header_sizes_of_share(files, communicator.rank(), communicator.size()); });
  const comm::Messages all = communicator.all_gather(mine);
  std::vector<std::uint64_t> sizes;
  comm::agree(communicator, "collect the sizes of headers", [&] { sizes = join_header_sizes(files, all); });
  return sizes;
}

std::map<std::string, std::string> exchange_indexes(comm::Communicator& communicator, const plan::HfLayout& files) {
  base::Bytes mine;
  comm::agree(communicator, "make the indexes",
              [&] { mine = indexes_of_share(files, communicator.rank(), communicator.size()); });
  comm::Messages shares = communicator.gather(mine, 0);
  mine = {};
  std::map<std::string, std::string> indexes;
  comm::agree_on_root(communicator, "collect the indexes", 0, [&] { indexes = join_indexes(std::move(shares)); });
  return indexes;
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
