// Do boxes cover a tensor exactly once? If not: which two overlap, or which element is in none of them.
//
// A sweep along the dimension with most cuts, and volumes: some thousand boxes per tensor take milliseconds.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "format/stored_checkpoint.hpp"

namespace cairn::interop {

struct CoverFault {
  bool overlap = false;   ///< else a hole
  std::size_t first = 0;  ///< the two boxes that overlap, first < second
  std::size_t second = 0;
  std::vector<std::uint64_t> element;  ///< the first element of the hole in row-major order
};

/// Requires: the boxes lie inside `shape`, none is empty, no two are equal, and the tensor's element count fits 64
/// bits.
std::optional<CoverFault> find_cover_fault(std::span<const format::StoredBox> boxes,
                                           std::span<const std::uint64_t> shape);

}  // namespace cairn::interop
