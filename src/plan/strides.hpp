// Strides: how far apart neighbours in each dimension of a box lie in memory, in elements. Pure.
//
// The elements of a box with strides ascend in row-major order, as those without do, but there may be gaps between rows,
// planes and so on, such as the ghost cells around a part of a grid. No strides at all mean no gaps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace cairn::plan {

/// Elements from the first to the last one of a box, both included; 0 for an empty box, nothing when it does not fit 64
/// bits. Requires: no strides, or one for each dimension.
std::optional<std::uint64_t> span_elements(std::span<const std::uint64_t> shape,
                                           std::span<const std::uint64_t> strides);

/// What is wrong with the strides of a box of this shape, or "". The innermost dimension that is longer than one element
/// has stride 1, and each other one at least the span of those inside it: then no two elements are at one place, and
/// runs are as long as rows. Strides of dimensions of one element, and those of an empty box, do not matter.
std::string stride_problem(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> strides);

/// Whether there is no gap. Requires: no stride_problem().
bool is_dense(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> strides);

}  // namespace cairn::plan
