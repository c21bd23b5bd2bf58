#include "plan/tiling.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>

#include "shard/box_math.hpp"

namespace cairn::plan {
namespace {

std::uint64_t end_of(const Box& box, std::size_t d) { return box.offset[d] + box.shape[d]; }

Box restricted(const Box& box, std::size_t d, std::uint64_t begin, std::uint64_t end) {
  Box out = box;
  out.offset[d] = begin;
  out.shape[d] = end - begin;
  return out;
}

/// Appends `region` without `box` (which lies inside it) as slabs: before and after in each dimension in turn.
void subtract(Box region, const Box& box, std::vector<Box>& out) {
  for (std::size_t d = 0; d < box.shape.size(); ++d) {
    if (region.offset[d] < box.offset[d]) out.push_back(restricted(region, d, region.offset[d], box.offset[d]));
    if (end_of(box, d) < end_of(region, d)) out.push_back(restricted(region, d, end_of(box, d), end_of(region, d)));
    region.offset[d] = box.offset[d];
    region.shape[d] = box.shape[d];
  }
}

/// A region still to be taken apart, and the boxes inside it: [first, last) of the shared order.
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

  /// Cuts the task along every plane of dimension d that no box crosses. False when there is none.
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

  /// Boxes that no plane separates: look for two with common elements, else for what they leave out.
  void compare_all(const Task& task) {
    const std::span<std::size_t> mine(order_.data() + task.first, task.last - task.first);
    const std::size_t d = sweep_dimension(task, mine);
    std::sort(mine.begin(), mine.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(boxes_[a].offset[d], a) < std::pair(boxes_[b].offset[d], b);
    });
    std::vector<std::size_t> active;
    std::uint64_t elements = 0;
    for (const std::size_t i : mine) {
      std::erase_if(active, [&](std::size_t j) { return end_of(boxes_[j], d) <= boxes_[i].offset[d]; });
      for (const std::size_t j : active) {
        if (!shard::intersect(boxes_[i], boxes_[j])) continue;
        result_.overlap = std::minmax(i, j);
        return;
      }
      active.push_back(i);
      elements += shard::elements_of(boxes_[i]);
    }
    if (elements == shard::elements_of(task.region)) return;
    add_leftovers(task, mine);
  }

  [[nodiscard]] std::size_t sweep_dimension(const Task& task, std::span<const std::size_t> mine) const {
    std::size_t best = 0;
    std::size_t most = 0;
    std::vector<std::uint64_t> begins;
    for (std::size_t d = 0; d < task.region.shape.size(); ++d) {
      begins.clear();
      for (const std::size_t i : mine) begins.push_back(boxes_[i].offset[d]);
      std::sort(begins.begin(), begins.end());
      const auto distinct = static_cast<std::size_t>(std::unique(begins.begin(), begins.end()) - begins.begin());
      if (distinct > most) {
        most = distinct;
        best = d;
      }
    }
    return best;
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

}  // namespace

Tiling check_tiling(const Box& region, const std::vector<Box>& boxes) { return Tiler(boxes).run(region); }

}  // namespace cairn::plan
