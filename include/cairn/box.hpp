// An n-dimensional rectangle of a tensor, counted in elements.
#pragma once

#include <cstdint>
#include <vector>

namespace cairn {

/// Elements [offset[d], offset[d] + shape[d]) of every dimension d of a tensor. A scalar has rank 0 and one element. A
/// box with a zero in `shape` is empty.
struct Box {
  std::vector<std::uint64_t> offset;
  std::vector<std::uint64_t> shape;

  friend bool operator==(const Box&, const Box&) = default;
};

}  // namespace cairn
