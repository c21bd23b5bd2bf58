// Do the ranks' boxes of a tensor cover it exactly once, replicas apart - and which replica provides which part?
//
// Runs on the tensor's home rank, which holds the records of this tensor from all ranks (and of few other tensors).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/box.hpp"
#include "plan/catalog.hpp"
#include "plan/pieces.hpp"

namespace cairn::plan {

// Do boxes tile a region: no two overlap, and nothing is left out?
//
// The region is taken apart along planes that no box crosses, as long as there are any: what meshes, ZeRO ranges and
// uneven cuts produce comes apart completely, in O(n log n). Whatever is left (a pinwheel, or an error) is compared box
// by box in a sweep along one dimension.

struct Tiling {
  /// Two boxes (by number) with common elements; when set, `holes` says nothing.
  std::optional<std::pair<std::size_t, std::size_t>> overlap;
  /// Disjoint boxes of elements in no box, ascending by offset: the first one begins at the first missing element.
  std::vector<Box> holes;
};

/// `boxes`: all different, none empty, all inside `region`, which is not empty.
Tiling check_tiling(const Box& region, const std::vector<Box>& boxes);

/// Ranks that hold one and the same box: ascending, each once, with the lowest of its local numbers.
struct ReplicaGroup {
  struct Holder {
    int rank = 0;
    std::uint32_t local = 0;
  };
  Box box;
  std::vector<Holder> holders;
};

/// The distinct boxes that are not empty, ascending by (offset, shape): disjoint, and together the whole tensor. Throws
/// as provide() does.
std::vector<ReplicaGroup> check_coverage(const CatalogTensor& tensor, std::vector<Piece> claims);

/// Claims are all of one tensor: whole memory boxes. Returned is which part of its claim each rank provides.
/// Equal boxes are replicas and share the work: a box of at least `share_bytes` per holder is cut in equal parts along
/// its first dimension that is long enough, smaller ones go whole to one holder chosen by `salt` (so that many small
/// tensors spread over the holders). A holder that claims the same box twice counts once. Empty boxes are ignored.
/// Throws Error(kState), one line with tensor, element range and ranks, for: a box outside the shape, boxes that
/// overlap without being equal, a hole, a sub-byte dtype cut inside a byte. Deterministic: any order of `claims` gives
/// the same answer, ascending by (rank, local, box).
std::vector<Piece> provide(const CatalogTensor& tensor, std::vector<Piece> claims, std::uint64_t share_bytes,
                           std::uint64_t salt);
/// The same of checked claims, which are of tensor number `number`.
std::vector<Piece> provide(const CatalogTensor& tensor, std::uint32_t number, std::span<const ReplicaGroup> groups,
                           std::uint64_t share_bytes, std::uint64_t salt);

/// A box of a rank that other ranks hold as well.
struct Replica {
  std::uint32_t tensor = 0;   ///< as Piece::tensor
  std::uint32_t local = 0;    ///< number of its memory box
  std::uint64_t holders = 0;  ///< a hash of their ranks: the same for all boxes that these ranks hold
  bool is_mixed = false;      ///< more than one rank provides bytes of the tensor

  friend bool operator==(const Replica&, const Replica&) = default;
};

/// Replica::holders of the group.
std::uint64_t hash_of_holders(const ReplicaGroup& group);

}  // namespace cairn::plan
