#include "plan/box_index.hpp"

#include <algorithm>
#include <numeric>

#include "base/checked.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan {
namespace {

/// Requires at least one box and one dimension.
std::size_t most_cut_dimension(std::span<const format::StoredBox> boxes) {
  std::size_t best = 0;
  std::size_t most = 0;
  std::vector<std::uint64_t> begins(boxes.size());
  for (std::size_t d = 0; d < boxes.front().box.shape.size(); ++d) {
    for (std::size_t i = 0; i < boxes.size(); ++i) begins[i] = boxes[i].box.offset[d];
    std::sort(begins.begin(), begins.end());
    const auto distinct = static_cast<std::size_t>(std::unique(begins.begin(), begins.end()) - begins.begin());
    if (distinct > most) {
      most = distinct;
      best = d;
    }
  }
  return best;
}

}  // namespace

BoxIndex::BoxIndex(std::span<const format::StoredBox> boxes) : boxes_(boxes), order_(boxes.size()) {
  base::narrow<std::uint32_t>(boxes.size(), "number of stored boxes of a tensor");
  std::iota(order_.begin(), order_.end(), 0U);
  if (boxes_.size() < 2 || boxes_.front().box.shape.empty()) return;
  dimension_ = most_cut_dimension(boxes_);
  const auto begin_of = [&](std::uint32_t i) { return boxes_[i].box.offset[dimension_]; };
  std::stable_sort(order_.begin(), order_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return begin_of(a) < begin_of(b); });
  largest_end_.reserve(order_.size());
  std::uint64_t largest = 0;
  for (const std::uint32_t i : order_) {
    largest = std::max(largest, begin_of(i) + boxes_[i].box.shape[dimension_]);
    largest_end_.push_back(largest);
  }
}

void BoxIndex::for_each_meeting(const Box& box, const std::function<void(std::uint32_t, const Box&)>& visit) const {
  std::size_t from = 0;
  std::size_t to = order_.size();
  if (!largest_end_.empty()) {
    const std::uint64_t begin = box.offset[dimension_];
    const std::uint64_t end = begin + box.shape[dimension_];
    from = static_cast<std::size_t>(std::upper_bound(largest_end_.begin(), largest_end_.end(), begin) -
                                    largest_end_.begin());
    to = static_cast<std::size_t>(
        std::partition_point(order_.begin(), order_.end(),
                             [&](std::uint32_t i) { return boxes_[i].box.offset[dimension_] < end; }) -
        order_.begin());
  }
  for (std::size_t i = from; i < to; ++i) {
    if (const auto common = shard::intersect(box, boxes_[order_[i]].box)) visit(order_[i], *common);
  }
}

}  // namespace cairn::plan
