// Pure functions on boxes. Boxes are in elements of the global tensor; rank = number of dimensions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/box.hpp"

namespace cairn::shard {

using Shape = std::vector<std::uint64_t>;

/// Elements in the box; 1 for a scalar. Requires: the box lies in a tensor whose size fits 64 bits.
std::uint64_t elements_of(const Box& box);
std::uint64_t elements_of(std::span<const std::uint64_t> shape);
/// Sum over all boxes.
std::uint64_t elements_of(std::span<const Box> boxes);

bool is_empty(const Box& box);

/// The box of the whole tensor.
Box whole(std::span<const std::uint64_t> shape);

/// Whether `box` has the rank of `shape` and lies inside it.
bool fits(const Box& box, std::span<const std::uint64_t> shape);

/// The common part, or nothing if it is empty. Requires equal rank.
std::optional<Box> intersect(const Box& a, const Box& b);

/// A flat element range [begin, end) of a row-major tensor as boxes in ascending order: at most 2n-1 of them for n
/// dimensions. Requires end <= elements_of(shape).
std::vector<Box> boxes_of_flat_range(std::span<const std::uint64_t> shape, std::uint64_t begin, std::uint64_t end);

/// Flat row-major element index, inside a tensor of `shape`, of the element at `index`.
std::uint64_t flat_index(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> index);

/// "[0:4, 8:16]" - half-open ranges per dimension, for messages.
std::string to_string(const Box& box);

/// "[576, 1536]"; "[]" for a scalar.
std::string shape_text(std::span<const std::uint64_t> shape);

}  // namespace cairn::shard
