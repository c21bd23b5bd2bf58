// Box arithmetic: exact integer work on row-major tensors.
#include "shard/box_math.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace cairn::shard {
namespace {

struct FlatWalk {
  std::span<const std::uint64_t> shape;
  std::vector<std::uint64_t> index;  // fixed coordinates of the dimensions above the current one
  std::vector<Box>* out;
};

void emit(FlatWalk& walk, std::size_t dim, std::uint64_t first, std::uint64_t count) {
  Box box;
  box.offset.assign(walk.shape.size(), 0);
  box.shape.assign(walk.shape.begin(), walk.shape.end());
  for (std::size_t d = 0; d < dim; ++d) {
    box.offset[d] = walk.index[d];
    box.shape[d] = 1;
  }
  box.offset[dim] = first;
  box.shape[dim] = count;
  walk.out->push_back(std::move(box));
}

// Splits [begin, end) of the elements at the fixed coordinates into a partial slice, whole slices and a partial slice.
void split_flat(FlatWalk& walk, std::size_t dim, std::uint64_t begin, std::uint64_t end) {
  if (begin >= end) return;
  const std::uint64_t slice = elements_of(walk.shape.subspan(dim + 1));
  std::uint64_t first = begin / slice;
  const std::uint64_t last = end / slice;
  if (begin % slice != 0) {
    walk.index[dim] = first;
    if (first == last) {
      split_flat(walk, dim + 1, begin % slice, end % slice);
      return;
    }
    split_flat(walk, dim + 1, begin % slice, slice);
    ++first;
  }
  if (first < last) emit(walk, dim, first, last - first);
  if (end % slice != 0) {
    walk.index[dim] = last;
    split_flat(walk, dim + 1, 0, end % slice);
  }
}

}  // namespace

std::uint64_t elements_of(std::span<const std::uint64_t> shape) {
  std::uint64_t n = 1;
  for (const std::uint64_t size : shape) n *= size;
  return n;
}

std::uint64_t elements_of(const Box& box) { return elements_of(box.shape); }

std::uint64_t elements_of(std::span<const Box> boxes) {
  std::uint64_t n = 0;
  for (const Box& box : boxes) n += elements_of(box);
  return n;
}

bool is_empty(const Box& box) { return std::ranges::find(box.shape, 0U) != box.shape.end(); }

Box whole(std::span<const std::uint64_t> shape) {
  return {std::vector<std::uint64_t>(shape.size(), 0), {shape.begin(), shape.end()}};
}

bool fits(const Box& box, std::span<const std::uint64_t> shape) {
  if (box.offset.size() != shape.size() || box.shape.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (box.offset[d] > shape[d] || box.shape[d] > shape[d] - box.offset[d]) return false;
  }
  return true;
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  Box out;
  out.offset.resize(a.offset.size());
  out.shape.resize(a.offset.size());
  for (std::size_t d = 0; d < a.offset.size(); ++d) {
    const std::uint64_t begin = std::max(a.offset[d], b.offset[d]);
    const std::uint64_t end = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]);
    if (begin >= end) return std::nullopt;
    out.offset[d] = begin;
    out.shape[d] = end - begin;
  }
  return out;
}

std::vector<Box> boxes_of_flat_range(std::span<const std::uint64_t> shape, std::uint64_t begin, std::uint64_t end) {
  std::vector<Box> out;
  if (begin >= end) return out;
  if (shape.empty()) {
    out.emplace_back();
    return out;
  }
  FlatWalk walk{shape, std::vector<std::uint64_t>(shape.size(), 0), &out};
  split_flat(walk, 0, begin, end);
  return out;
}

std::uint64_t flat_index(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> index) {
  std::uint64_t flat = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
  return flat;
}

std::string to_string(const Box& box) {
  std::string text = "[";
  for (std::size_t d = 0; d < box.offset.size(); ++d) {
    if (d != 0) text += ", ";
    text += std::to_string(box.offset[d]) + ":" + std::to_string(box.offset[d] + box.shape[d]);
  }
  return text + "]";
}

std::string shape_text(std::span<const std::uint64_t> shape) { return "[" + base::joined(shape) + "]"; }

}  // namespace cairn::shard
