// Overlaps by a sweep with an active list; holes by comparing volumes, since disjoint boxes of full volume leave none.
#include "interop/cover.hpp"

#include <algorithm>
#include <map>

#include "shard/box_math.hpp"

namespace cairn::interop {
namespace {

using Boxes = std::span<const format::StoredBox>;

std::uint64_t begin_of(const Box& box, std::size_t dim) { return box.offset[dim]; }
std::uint64_t end_of(const Box& box, std::size_t dim) { return box.offset[dim] + box.shape[dim]; }

bool overlap(const Box& a, const Box& b) {
  for (std::size_t d = 0; d < a.offset.size(); ++d) {
    if (end_of(a, d) <= begin_of(b, d) || end_of(b, d) <= begin_of(a, d)) return false;
  }
  return true;
}

/// The dimension with most different offsets: there the fewest boxes are active at a time.
std::size_t sweep_dimension(Boxes boxes, std::size_t rank) {
  std::size_t best = 0;
  std::size_t most = 0;
  std::vector<std::uint64_t> offsets(boxes.size());
  for (std::size_t d = 0; d < rank; ++d) {
    std::transform(boxes.begin(), boxes.end(), offsets.begin(), [&](const auto& b) { return begin_of(b.box, d); });
    std::sort(offsets.begin(), offsets.end());
    const auto distinct = static_cast<std::size_t>(std::unique(offsets.begin(), offsets.end()) - offsets.begin());
    if (distinct > most) {
      most = distinct;
      best = d;
    }
  }
  return best;
}

std::optional<CoverFault> find_overlap(Boxes boxes, std::size_t rank) {
  const std::size_t dim = sweep_dimension(boxes, rank);
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(begin_of(boxes[a].box, dim), a) < std::pair(begin_of(boxes[b].box, dim), b);
  });
  std::vector<std::size_t> active;
  for (const std::size_t next : order) {
    const Box& box = boxes[next].box;
    std::erase_if(active, [&](std::size_t i) { return end_of(boxes[i].box, dim) <= begin_of(box, dim); });
    for (const std::size_t other : active) {
      if (overlap(boxes[other].box, box)) {
        CoverFault fault;
        fault.overlap = true;
        fault.first = std::min(other, next);
        fault.second = std::max(other, next);
        return fault;
      }
    }
    active.push_back(next);
  }
  return std::nullopt;
}

/// Requires disjoint boxes with less volume than the tensor. Dimension by dimension: the first coordinate whose slice
/// is not full, then the same inside that slice.
std::vector<std::uint64_t> first_hole(Boxes boxes, std::span<const std::uint64_t> shape) {
  std::vector<std::uint64_t> element;
  std::vector<std::size_t> members(boxes.size());
  std::iota(members.begin(), members.end(), std::size_t{0});
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::uint64_t full = shard::elements_of(shape.subspan(d + 1));
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> changes;  // coordinate -> slice volume in, out
    changes[0];
    for (const std::size_t i : members) {
      const Box& box = boxes[i].box;
      const std::uint64_t slice = shard::elements_of(std::span(box.shape).subspan(d + 1));
      changes[begin_of(box, d)].first += slice;
      changes[end_of(box, d)].second += slice;
    }
    std::uint64_t covered = 0;
    std::uint64_t at = 0;
    for (const auto& [coordinate, change] : changes) {
      covered = covered + change.first - change.second;
      at = coordinate;
      if (covered < full) break;
    }
    element.push_back(at);
    std::erase_if(members,
                  [&](std::size_t i) { return at < begin_of(boxes[i].box, d) || at >= end_of(boxes[i].box, d); });
  }
  return element;
}

}  // namespace

std::optional<CoverFault> find_cover_fault(Boxes boxes, std::span<const std::uint64_t> shape) {
  if (shape.empty()) return std::nullopt;  // a scalar: its only box is the whole
  if (auto fault = find_overlap(boxes, shape.size())) return fault;
  std::uint64_t covered = 0;
  for (const auto& stored : boxes) covered += shard::elements_of(stored.box.shape);
  if (covered == shard::elements_of(shape)) return std::nullopt;
  CoverFault hole;
  hole.element = first_hole(boxes, shape);
  return hole;
}

}  // namespace cairn::interop
