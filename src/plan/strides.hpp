// Strides: the distance in memory between neighbours in each dimension of a box, in elements. Pure.
//
// The elements of a box with strides ascend in row-major order, but there may be gaps between rows, planes and so on,
// such as the ghost cells around a part of a grid. An empty list of strides means no gaps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace cairn::plan {

/// Number of elements of memory from the first to the last element of a box, including both; 0 for an empty box,
/// nullopt if the number does not fit in 64 bits. Requires: no strides, or one for each dimension.
std::optional<std::uint64_t> span_elements(std::span<const std::uint64_t> shape,
                                           std::span<const std::uint64_t> strides);

/// The problem with the strides of a box of this shape, or "". The innermost dimension that is longer than one
/// element must have stride 1, and each other dimension at least the span of the dimensions inside it. Then no two
/// elements share a place, and runs are as long as rows. Strides of dimensions of one element, and of an empty box,
/// do not matter.
std::string stride_problem(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> strides);

/// Whether the box has no gaps. Requires: no stride_problem().
bool is_dense(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> strides);

}  // namespace cairn::plan
