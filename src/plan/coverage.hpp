// Coverage: checks that the ranks' boxes of a tensor cover it exactly once, apart from replicas, and chooses the
// replica that provides each part.
//
// In a save, the tensor's home rank does this work: it has all ranks' claims on this tensor (and few other tensors).
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

// Tiling: checks whether boxes fill a region without overlap.
//
// The region is split along planes that no box crosses, as long as there are any. Meshes, ZeRO ranges and uneven cuts
// split completely, in O(n log n). The rest (a pinwheel, or an error) is compared box by box in a sweep along one
// dimension.

struct Tiling {
  /// Numbers of two boxes with common elements; when set, `holes` has no meaning.
  std::optional<std::pair<std::size_t, std::size_t>> overlap;
  /// Disjoint boxes of the uncovered elements, ascending by offset: the first begins at the first missing element.
  std::vector<Box> holes;
};

/// Requires: `boxes` are distinct, not empty, and inside `region`, which is not empty.
Tiling check_tiling(const Box& region, const std::vector<Box>& boxes);

/// The ranks that hold a box: ascending, each once, with the rank's lowest local number for the box.
struct ReplicaGroup {
  struct Holder {
    int rank = 0;
    std::uint32_t local = 0;
  };
  Box box;
  std::vector<Holder> holders;
};

/// The distinct non-empty boxes, ascending by (offset, shape): disjoint, and tiling the tensor. Throws as provide().
std::vector<ReplicaGroup> check_coverage(const CatalogTensor& tensor, std::vector<Piece> claims);

/// The part of its claims that each rank provides. `claims`: all ranks' claims on one tensor, as whole memory boxes.
/// Equal boxes are replicas and share the work: a box of at least `share_bytes` per holder is cut into nearly equal
/// parts along its first dimension that is long enough; any other box is assigned whole to one holder chosen by
/// `salt`, so that many small tensors are spread over the holders. A holder that claims a box twice counts once. Empty
/// boxes are ignored. Deterministic: any order of `claims` gives the same answer, ascending by (rank, local, box).
/// Throws Error(kState), naming the tensor, the elements and the ranks that hold them, for a box outside the shape,
/// boxes that overlap without being equal, a hole, and a sub-byte dtype cut inside a byte.
std::vector<Piece> provide(const CatalogTensor& tensor, std::vector<Piece> claims, std::uint64_t share_bytes,
                           std::uint64_t salt);
/// provide() for claims that check_coverage() has grouped; `number` becomes Piece::tensor.
std::vector<Piece> provide(const CatalogTensor& tensor, std::uint32_t number, std::span<const ReplicaGroup> groups,
                           std::uint64_t share_bytes, std::uint64_t salt);

/// A box of a rank that other ranks also hold.
struct Replica {
  std::uint32_t tensor = 0;   ///< as Piece::tensor
  std::uint32_t local = 0;    ///< number of the rank's memory box
  std::uint64_t holders = 0;  ///< hash_of_holders(): equal for boxes that the same ranks hold
  bool is_mixed = false;      ///< several ranks provide bytes of the tensor

  friend bool operator==(const Replica&, const Replica&) = default;
};

/// A hash of the group's ranks, for Replica::holders.
std::uint64_t hash_of_holders(const ReplicaGroup& group);

}  // namespace cairn::plan
