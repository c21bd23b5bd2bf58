// Finds overlapping boxes by a sweep along the dimension in which the boxes have the most different start positions:
// there the sweep usually meets the fewest boxes at a time.
//
// `box_of(i)` gives box i as a const Box&.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cairn/box.hpp"
#include "shard/box_math.hpp"

namespace cairn::shard {

/// The dimension for a sweep of boxes 0 .. count - 1, which have `rank` dimensions. Requires: rank > 0.
template <class BoxOf>
std::size_t sweep_dimension(std::size_t count, std::size_t rank, const BoxOf& box_of) {
  std::size_t best = 0;
  std::size_t most = 0;
  std::vector<std::uint64_t> begins(count);
  for (std::size_t d = 0; d < rank; ++d) {
    for (std::size_t i = 0; i < count; ++i) begins[i] = box_of(i).offset[d];
    std::sort(begins.begin(), begins.end());
    const auto distinct = static_cast<std::size_t>(std::unique(begins.begin(), begins.end()) - begins.begin());
    if (distinct > most) {
      most = distinct;
      best = d;
    }
  }
  return best;
}

/// Two overlapping boxes of `order`, the lower number first; nothing if there are none. Leaves `order` sorted along the
/// sweep. Requires: rank > 0.
template <class BoxOf>
std::optional<std::pair<std::size_t, std::size_t>> find_overlap(std::span<std::size_t> order, std::size_t rank,
                                                                const BoxOf& box_of) {
  const std::size_t d =
      sweep_dimension(order.size(), rank, [&](std::size_t i) -> const Box& { return box_of(order[i]); });
  const auto begin_of = [&](std::size_t i) { return box_of(i).offset[d]; };
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return std::pair(begin_of(a), a) < std::pair(begin_of(b), b); });
  std::vector<std::size_t> active;
  for (const std::size_t i : order) {
    std::erase_if(active, [&](std::size_t j) { return begin_of(j) + box_of(j).shape[d] <= begin_of(i); });
    for (const std::size_t j : active) {
      if (intersect(box_of(i), box_of(j))) return std::minmax({i, j});
    }
    active.push_back(i);
  }
  return std::nullopt;
}

}  // namespace cairn::shard
