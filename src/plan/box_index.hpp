// The stored boxes of one tensor, ordered so that those that meet a given box are found without trying all.
//
// Boxes are sorted along the dimension in which they have the most distinct begins, with the largest end so far beside
// each: the candidates are one stretch of the list. For a tensor cut along one dimension that is exactly the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "cairn/box.hpp"
#include "format/stored_checkpoint.hpp"

namespace cairn::plan {

class BoxIndex {
 public:
  BoxIndex() = default;
  /// `boxes` must outlive the index; all of one rank.
  explicit BoxIndex(std::span<const format::StoredBox> boxes);

  /// Calls `visit` with the number of each box that has elements in common with `box`, and those elements.
  void for_each_meeting(const Box& box, const std::function<void(std::uint32_t, const Box&)>& visit) const;

 private:
  std::span<const format::StoredBox> boxes_;
  std::size_t dimension_ = 0;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint64_t> largest_end_;  ///< of the boxes up to and with this place of order_
};

}  // namespace cairn::plan
