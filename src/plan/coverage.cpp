// Groups equal claims, checks that the groups tile the tensor, and assigns the parts to ranks.
#include "plan/coverage.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>

#include "base/mix.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "plan/runs.hpp"
#include "shard/box_math.hpp"
#include "shard/box_sweep.hpp"

namespace cairn::plan {
namespace {

std::uint64_t end_of(const Box& box, std::size_t d) { return box.offset[d] + box.shape[d]; }

Box restricted(const Box& box, std::size_t d, std::uint64_t begin, std::uint64_t end) {
  Box out = box;
  out.offset[d] = begin;
  out.shape[d] = end - begin;
  return out;
}

/// Appends the rest of `region` around `box`, a box inside it, as slabs before and after `box` in each dimension.
void subtract(Box region, const Box& box, std::vector<Box>& out) {
  for (std::size_t d = 0; d < box.shape.size(); ++d) {
    if (region.offset[d] < box.offset[d]) out.push_back(restricted(region, d, region.offset[d], box.offset[d]));
    if (end_of(box, d) < end_of(region, d)) out.push_back(restricted(region, d, end_of(box, d), end_of(region, d)));
    region.offset[d] = box.offset[d];
    region.shape[d] = box.shape[d];
  }
}

/// A region still to be split, and the boxes inside the region: entries [first, last) of Tiler::order_.
struct Task {
  Box region;
  std::size_t first;
  std::size_t last;
};

class Tiler {
 public:
  explicit Tiler(const std::vector<Box>& boxes) : boxes_(boxes), order_(boxes.size()) {
    std::iota(order_.begin(), order_.end(), std::size_t{0});
  }

  Tiling run(const Box& region) {
    tasks_.push_back({region, 0, order_.size()});
    while (!tasks_.empty() && !result_.overlap) {
      const Task task = std::move(tasks_.back());
      tasks_.pop_back();
      solve(task);
    }
    std::sort(result_.holes.begin(), result_.holes.end(),
              [](const Box& a, const Box& b) { return a.offset < b.offset; });
    return std::move(result_);
  }

 private:
  void solve(const Task& task) {
    if (task.first == task.last) {
      result_.holes.push_back(task.region);
      return;
    }
    if (task.last - task.first == 1) {
      subtract(task.region, boxes_[order_[task.first]], result_.holes);
      return;
    }
    for (std::size_t d = 0; d < task.region.shape.size(); ++d) {
      if (split(task, d)) return;
    }
    compare_all(task);
  }

  /// Cuts the task along every plane of dimension d that no box crosses. False if there is no such plane.
  bool split(const Task& task, std::size_t d) {
    const std::span<std::size_t> mine(order_.data() + task.first, task.last - task.first);
    std::sort(mine.begin(), mine.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(boxes_[a].offset[d], a) < std::pair(boxes_[b].offset[d], b);
    });
    std::uint64_t at = task.region.offset[d];
    bool cut = false;
    for (std::size_t first = 0; first < mine.size();) {
      const std::uint64_t begin = boxes_[mine[first]].offset[d];
      std::uint64_t end = end_of(boxes_[mine[first]], d);
      std::size_t last = first + 1;
      for (; last < mine.size() && boxes_[mine[last]].offset[d] < end; ++last) {
        end = std::max(end, end_of(boxes_[mine[last]], d));
      }
      if (begin == task.region.offset[d] && end == end_of(task.region, d)) return false;
      cut = true;
      if (at < begin) result_.holes.push_back(restricted(task.region, d, at, begin));
      tasks_.push_back({restricted(task.region, d, begin, end), task.first + first, task.first + last});
      at = end;
      first = last;
    }
    if (at < end_of(task.region, d)) result_.holes.push_back(restricted(task.region, d, at, end_of(task.region, d)));
    return cut;
  }

  /// For boxes that planes do not separate: looks for two boxes with common elements, then for uncovered elements.
  void compare_all(const Task& task) {
    const std::span<std::size_t> mine(order_.data() + task.first, task.last - task.first);
    const auto box_of = [&](std::size_t i) -> const Box& { return boxes_[i]; };
    result_.overlap = shard::find_overlap(mine, task.region.shape.size(), box_of);
    if (result_.overlap) return;
    std::uint64_t elements = 0;
    for (const std::size_t i : mine) elements += shard::elements_of(boxes_[i]);
    if (elements == shard::elements_of(task.region)) return;
    add_leftovers(task, mine);
  }

  void add_leftovers(const Task& task, std::span<const std::size_t> mine) {
    std::vector<Box> left = {task.region};
    std::vector<Box> next;
    for (const std::size_t i : mine) {
      next.clear();
      for (const Box& piece : left) {
        if (const auto common = shard::intersect(piece, boxes_[i])) {
          subtract(piece, *common, next);
        } else {
          next.push_back(piece);
        }
      }
      left.swap(next);
    }
    result_.holes.insert(result_.holes.end(), left.begin(), left.end());
  }

  const std::vector<Box>& boxes_;
  std::vector<std::size_t> order_;
  std::vector<Task> tasks_;
  Tiling result_;
};

Error state_error(const CatalogTensor& tensor, const std::string& what) {
  return {ErrorKind::kState, fmt::format("tensor '{}' (section {}){}", base::printable(tensor.name),
                                         base::printable(tensor.section), what)};
}

void check_claim(const CatalogTensor& tensor, const Piece& claim) {
  if (claim.box.offset.size() != claim.box.shape.size()) {
    throw state_error(tensor, fmt::format(": rank {} holds a box with {} offsets and {} sizes", claim.rank,
                                          claim.box.offset.size(), claim.box.shape.size()));
  }
  if (!shard::fits(claim.box, tensor.shape)) {
    throw state_error(tensor, fmt::format(": rank {} holds {}, which is not inside the tensor {}", claim.rank,
                                          shard::to_string(claim.box), shard::to_string(shard::whole(tensor.shape))));
  }
  const Box whole = shard::whole(tensor.shape);
  if (!is_byte_aligned(tensor.dtype, {0, 0, whole}, claim.box, claim.box)) {
    throw state_error(tensor, fmt::format(" is packed ({}): rank {} holds {}, which begins or ends inside a byte; cut "
                                          "it where a whole number of bytes ends",
                                          name_of(tensor.dtype), claim.rank, shard::to_string(claim.box)));
  }
}

void check_groups(const CatalogTensor& tensor, const std::vector<ReplicaGroup>& groups) {
  const Box whole = shard::whole(tensor.shape);
  if (shard::is_empty(whole)) return;
  std::vector<Box> boxes;
  boxes.reserve(groups.size());
  for (const ReplicaGroup& group : groups) boxes.push_back(group.box);
  const Tiling tiling = check_tiling(whole, boxes);
  if (tiling.overlap) {
    const ReplicaGroup& a = groups[tiling.overlap->first];
    const ReplicaGroup& b = groups[tiling.overlap->second];
    throw state_error(
        tensor,
        fmt::format(" overlaps: rank {} holds {} and rank {} holds {}, both hold {}; replicas must be equal boxes",
                    a.holders.front().rank, shard::to_string(a.box), b.holders.front().rank, shard::to_string(b.box),
                    shard::to_string(*shard::intersect(a.box, b.box))));
  }
  if (tiling.holes.empty()) return;
  const std::size_t more = tiling.holes.size() - 1;
  throw state_error(tensor,
                    fmt::format(": elements {} are held by no rank{}", shard::to_string(tiling.holes.front()),
                                more == 0 ? "" : fmt::format(" (and {} more {})", more, more == 1 ? "box" : "boxes")));
}

/// The smallest number of elements that fills whole bytes: a packed dtype can be cut at multiples of this number.
std::uint64_t elements_per_cut(DType dtype) {
  switch (bits_of(dtype) % 8) {
    case 4: return 2;
    case 6: return 4;
    default: return 1;
  }
}

/// `count` parts of nearly equal length along dimension d, or nullopt if the dimension is too short or a cut would
/// fall inside a byte.
std::optional<std::vector<Box>> cut_along(const CatalogTensor& tensor, const Box& box, std::size_t d,
                                          std::uint64_t count) {
  const std::uint64_t unit = elements_per_cut(tensor.dtype);
  const std::uint64_t units = box.shape[d] / unit;
  if (units < count) return std::nullopt;
  std::vector<Box> parts;
  std::uint64_t begin = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t whole_units = (i + 1) * (units / count) + std::min(i + 1, units % count);
    const std::uint64_t end = i + 1 == count ? box.shape[d] : whole_units * unit;
    Box part = box;
    part.offset[d] += begin;
    part.shape[d] = end - begin;
    if (unit > 1 && !is_byte_aligned(tensor.dtype, {0, 0, shard::whole(tensor.shape)}, box, part)) return std::nullopt;
    parts.push_back(std::move(part));
    begin = end;
  }
  return parts;
}

/// One part per holder if the box is large enough and can be cut, otherwise the whole box.
std::vector<Box> shares_of(const CatalogTensor& tensor, const Box& box, std::uint64_t holders,
                           std::uint64_t share_bytes) {
  const std::uint64_t elements = shard::elements_of(box);
  const std::uint64_t bytes = elements / 8 * bits_of(tensor.dtype) + elements % 8 * bits_of(tensor.dtype) / 8;
  if (holders > 1 && bytes / holders >= share_bytes) {
    for (std::size_t d = 0; d < box.shape.size(); ++d) {
      if (auto parts = cut_along(tensor, box, d, holders)) return std::move(*parts);
    }
  }
  return {box};
}

}  // namespace

Tiling check_tiling(const Box& region, const std::vector<Box>& boxes) { return Tiler(boxes).run(region); }

std::vector<ReplicaGroup> check_coverage(const CatalogTensor& tensor, std::vector<Piece> claims) {
  std::erase_if(claims, [](const Piece& claim) { return shard::is_empty(claim.box); });
  std::sort(claims.begin(), claims.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.box.offset, a.box.shape, a.rank, a.local) < std::tie(b.box.offset, b.box.shape, b.rank, b.local);
  });
  std::vector<ReplicaGroup> groups;
  for (Piece& claim : claims) {
    const ReplicaGroup::Holder holder{claim.rank, claim.local};
    if (!groups.empty() && groups.back().box == claim.box) {
      if (groups.back().holders.back().rank != claim.rank) groups.back().holders.push_back(holder);
      continue;
    }
    check_claim(tensor, claim);
    groups.push_back({std::move(claim.box), {holder}});
  }
  check_groups(tensor, groups);
  return groups;
}

std::vector<Piece> provide(const CatalogTensor& tensor, std::vector<Piece> claims, std::uint64_t share_bytes,
                           std::uint64_t salt) {
  const std::uint32_t number = claims.empty() ? 0 : claims.front().tensor;
  return provide(tensor, number, check_coverage(tensor, std::move(claims)), share_bytes, salt);
}

std::vector<Piece> provide(const CatalogTensor& tensor, std::uint32_t number, std::span<const ReplicaGroup> groups,
                           std::uint64_t share_bytes, std::uint64_t salt) {
  std::vector<Piece> out;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const ReplicaGroup& group = groups[g];
    std::vector<Box> parts = shares_of(tensor, group.box, group.holders.size(), share_bytes);
    if (parts.size() == 1) {
      const auto& chosen = group.holders[base::split_mix64(base::split_mix64(salt) ^ g) % group.holders.size()];
      out.push_back({number, chosen.local, chosen.rank, std::move(parts.front())});
      continue;
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
      out.push_back({number, group.holders[i].local, group.holders[i].rank, std::move(parts[i])});
    }
  }
  std::sort(out.begin(), out.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.rank, a.local, a.box.offset, a.box.shape) < std::tie(b.rank, b.local, b.box.offset, b.box.shape);
  });
  return out;
}

std::uint64_t hash_of_holders(const ReplicaGroup& group) {
  std::uint64_t hash = group.holders.size();
  for (const ReplicaGroup::Holder& holder : group.holders) {
    hash = base::split_mix64(hash ^ static_cast<std::uint64_t>(holder.rank));
  }
  return hash;
}

}  // namespace cairn::plan
