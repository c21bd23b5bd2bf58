// Boxes of shards; see selection.hpp.
#include "shard/selection.hpp"

#include <algorithm>

#include "shard/box_math.hpp"

namespace cairn::shard {
namespace {

// The dimension along which b continues a, memory included: everything before it has one element, everything after it
// is equal. False when there is none.
bool continues(const Box& a, const Box& b) {
  for (std::size_t d = 0; d < a.shape.size(); ++d) {
    if (a.offset[d] == b.offset[d] && a.shape[d] == 1 && b.shape[d] == 1) continue;
    if (a.offset[d] + a.shape[d] != b.offset[d]) return false;
    return std::equal(a.offset.begin() + static_cast<std::ptrdiff_t>(d) + 1, a.offset.end(),
                      b.offset.begin() + static_cast<std::ptrdiff_t>(d) + 1) &&
           std::equal(a.shape.begin() + static_cast<std::ptrdiff_t>(d) + 1, a.shape.end(),
                      b.shape.begin() + static_cast<std::ptrdiff_t>(d) + 1);
  }
  return false;
}

void join(Box& a, const Box& b) {
  for (std::size_t d = 0; d < a.shape.size(); ++d) {
    if (a.offset[d] != b.offset[d]) {
      a.shape[d] += b.shape[d];
      return;
    }
  }
}

}  // namespace

std::vector<Box> boxes_of(const std::vector<std::vector<Range>>& ranges) {
  std::vector<Box> out;
  if (std::ranges::any_of(ranges, [](const auto& r) { return r.empty(); })) return out;
  std::vector<std::size_t> index(ranges.size(), 0);
  for (;;) {
    Box& box = out.emplace_back();
    box.offset.reserve(ranges.size());
    box.shape.reserve(ranges.size());
    for (std::size_t d = 0; d < ranges.size(); ++d) {
      const Range& range = ranges[d][index[d]];
      box.offset.push_back(range.begin);
      box.shape.push_back(range.end - range.begin);
    }
    std::size_t d = ranges.size();
    while (d > 0 && ++index[d - 1] == ranges[d - 1].size()) index[--d] = 0;
    if (d == 0) return out;
  }
}

std::vector<Box> slice(const std::vector<Box>& shard, std::uint64_t begin, std::uint64_t end) {
  std::vector<Box> out;
  std::uint64_t at = 0;  // element of the shard where `box` begins
  for (const Box& box : shard) {
    const std::uint64_t size = elements_of(box);
    const std::uint64_t from = std::max(begin, at);
    const std::uint64_t to = std::min(end, at + size);
    if (from < to) {
      for (Box& piece : boxes_of_flat_range(box.shape, from - at, to - at)) {
        for (std::size_t d = 0; d < piece.offset.size(); ++d) piece.offset[d] += box.offset[d];
        out.push_back(std::move(piece));
      }
    }
    at += size;
  }
  merge_neighbours(out);
  return out;
}

void merge_neighbours(std::vector<Box>& boxes) {
  std::size_t kept = 0;
  for (std::size_t i = 1; i < boxes.size(); ++i) {
    if (continues(boxes[kept], boxes[i])) {
      join(boxes[kept], boxes[i]);
    } else {
      ++kept;
      if (kept != i) boxes[kept] = std::move(boxes[i]);
    }
  }
  if (!boxes.empty()) boxes.resize(kept + 1);
}

}  // namespace cairn::shard
