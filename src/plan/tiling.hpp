// Do boxes tile a region: no two overlap, and nothing is left out?
//
// The region is taken apart along planes that no box crosses, as long as there are any: what meshes, ZeRO ranges and
// uneven cuts produce comes apart completely, in O(n log n). Whatever is left (a pinwheel, or an error) is compared box
// by box in a sweep along one dimension.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "cairn/box.hpp"

namespace cairn::plan {

struct Tiling {
  /// Two boxes (by number) with common elements; when set, `holes` says nothing.
  std::optional<std::pair<std::size_t, std::size_t>> overlap;
  /// Disjoint boxes of elements in no box, ascending by offset: the first one begins at the first missing element.
  std::vector<Box> holes;
};

/// `boxes`: all different, none empty, all inside `region`, which is not empty.
Tiling check_tiling(const Box& region, const std::vector<Box>& boxes);

}  // namespace cairn::plan
