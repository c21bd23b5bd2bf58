#include "plan/tensor_map.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "plan/coverage.hpp"
#include "plan/strides.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan {
namespace {

[[noreturn]] void refuse(const CatalogTensor& target, const std::string& why) {
  throw Error(ErrorKind::kUsage, fmt::format("tensor '{}' (section {}) cannot be made: {}",
                                             base::printable(target.name), base::printable(target.section), why));
}

const CatalogTensor& source_of(const Catalog& sources, const CatalogTensor& target, std::uint32_t number) {
  if (number >= sources.tensors.size()) refuse(target, fmt::format("there is no source number {}", number));
  return sources.tensors[number];
}

bool is_order(std::vector<std::uint32_t> order, std::size_t dimensions) {
  std::ranges::sort(order);
  for (std::size_t d = 0; d < order.size(); ++d) {
    if (order[d] != d) return false;
  }
  return order.size() == dimensions;
}

/// The box of the target that a piece fills.
Box filled_by(const MapPiece& piece) {
  Box box{piece.at, {}};
  for (const std::uint32_t d : piece.order) box.shape.push_back(piece.box.shape[d]);
  return box;
}

void check_piece(const CatalogTensor& target, const MapPiece& piece, const CatalogTensor& source) {
  const auto require = [&](bool holds, const std::string& else_what) {
    if (!holds) refuse(target, fmt::format("{} '{}'", else_what, base::printable(source.name)));
  };
  require(source.dtype == target.dtype, "its dtype is not that of");
  require(bits_of(target.dtype) >= 8,
          fmt::format("elements of {} share bytes and cannot be cut or transposed, as in", name_of(target.dtype)));
  require(shard::fits(piece.box, source.shape), shard::to_string(piece.box) + " is not inside");
  require(is_order(piece.order, source.shape.size()), "its order of dimensions does not fit");
  const Box filled = filled_by(piece);
  if (!shard::fits(filled, target.shape)) refuse(target, shard::to_string(filled) + " is not inside it");
}

void check_cover(const CatalogTensor& target, const std::vector<MapPiece>& pieces) {
  std::vector<Box> boxes;
  for (const MapPiece& piece : pieces) {
    if (!shard::is_empty(piece.box)) boxes.push_back(filled_by(piece));
  }
  std::ranges::sort(boxes, {}, [](const Box& box) { return std::pair(box.offset, box.shape); });
  const auto twice = std::ranges::adjacent_find(boxes);
  if (twice != boxes.end()) refuse(target, shard::to_string(*twice) + " has two sources");
  const Box whole = shard::whole(target.shape);
  if (shard::is_empty(whole)) return;
  const Tiling tiling = check_tiling(whole, boxes);
  if (tiling.overlap) {
    const auto& [a, b] = *tiling.overlap;
    refuse(target, fmt::format("{} and {} overlap", shard::to_string(boxes[a]), shard::to_string(boxes[b])));
  }
  if (!tiling.holes.empty()) refuse(target, shard::to_string(tiling.holes[0]) + " has no source");
}

std::vector<std::uint64_t> strides_of(std::span<const std::uint64_t> shape) {
  std::vector<std::uint64_t> strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}

/// Number of elements in `outer`'s memory before the first element of `box`.
std::uint64_t elements_before(const Box& box, const Box& outer, std::span<const std::uint64_t> strides) {
  std::uint64_t elements = 0;
  for (std::size_t d = 0; d < strides.size(); ++d) elements += (box.offset[d] - outer.offset[d]) * strides[d];
  return elements;
}

}  // namespace

TensorMap as_they_are(const Catalog& sources) {
  TensorMap map{sources, std::vector<std::uint32_t>(sources.tensors.size()), {}};
  std::iota(map.sources.begin(), map.sources.end(), 0U);
  return map;
}

MapPiece reversed(std::uint32_t source, std::span<const std::uint64_t> shape) {
  MapPiece piece{source, shard::whole(shape), std::vector<std::uint64_t>(shape.size()), {}};
  for (std::size_t d = shape.size(); d-- > 0;) piece.order.push_back(static_cast<std::uint32_t>(d));
  return piece;
}

TensorMap in_catalog_order(TensorMap map) {
  TensorMap out{make_catalog(map.catalog.tensors), {}, {}};
  const NumbersByName numbers = numbers_by_name(map.catalog.tensors);
  for (const CatalogTensor& tensor : out.catalog.tensors) {
    const std::uint32_t number = numbers.at({tensor.section, tensor.name});
    const auto found = map.pieces.find(number);
    if (found != map.pieces.end()) {
      out.pieces.emplace(static_cast<std::uint32_t>(out.sources.size()), std::move(found->second));
    }
    out.sources.push_back(map.sources[number]);
  }
  return out;
}

void check_map(const TensorMap& map, const Catalog& sources) {
  for (std::uint32_t i = 0; i < map.catalog.tensors.size(); ++i) {
    const CatalogTensor& target = map.catalog.tensors[i];
    const auto found = map.pieces.find(i);
    if (found != map.pieces.end()) {
      for (const MapPiece& piece : found->second) check_piece(target, piece, source_of(sources, target, piece.source));
      check_cover(target, found->second);
      continue;
    }
    const CatalogTensor& source = source_of(sources, target, map.sources.at(i));
    if (source.dtype == target.dtype && source.shape == target.shape) continue;
    refuse(target, fmt::format("it is not as '{}' in dtype and shape", base::printable(source.name)));
  }
}

std::optional<MemoryBox> part_of_source(const MapPiece& piece, DType dtype, const MemoryBox& memory) {
  const auto common = shard::intersect(filled_by(piece), memory.box);
  if (!common) return std::nullopt;
  const auto strides = memory.strides.empty() ? strides_of(memory.box.shape) : memory.strides;
  MemoryBox part{memory.tensor, piece.box, {}, memory.memory, std::vector<std::uint64_t>(strides.size())};
  for (std::size_t d = 0; d < strides.size(); ++d) {
    const std::uint32_t of_source = piece.order[d];
    part.box.offset[of_source] += common->offset[d] - piece.at[d];
    part.box.shape[of_source] = common->shape[d];
    part.strides[of_source] = strides[d];
  }
  if (!memory.bytes.empty()) {
    const std::uint64_t width = bits_of(dtype) / 8;
    const std::uint64_t span = span_elements(common->shape, strides).value_or(0);
    part.bytes = memory.bytes.subspan(elements_before(*common, memory.box, strides) * width, span * width);
  }
  if (!is_turned(part) && is_dense(part.box.shape, part.strides)) part.strides.clear();
  return part;
}

bool is_turned(const MemoryBox& memory) { return !stride_problem(memory.box.shape, memory.strides).empty(); }

Upright upright(DType dtype, const Box& box, const MemoryBox& memory) {
  std::vector<std::size_t> order(box.shape.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t d) { return memory.strides[d]; });
  MemoryBox sorted;
  for (const std::size_t d : order) {
    sorted.box.offset.push_back(0);
    sorted.box.shape.push_back(box.shape[d]);
    sorted.strides.push_back(memory.strides[d]);
  }
  const std::vector<std::uint64_t> dense = strides_of(sorted.box.shape);
  Upright out{std::vector<std::uint64_t>(order.size()), {}};
  for (std::size_t d = 0; d < order.size(); ++d) out.strides[order[d]] = dense[d];
  Runs runs = runs_of(dtype, {0, 0, sorted.box}, sorted, sorted.box);
  runs.memory_begin += elements_before(box, memory.box, memory.strides) * bits_of(dtype) / 8;
  for_each_run(runs, [&](const Run& run) { out.runs.push_back(run); });
  return out;
}

namespace {

/// A loop over elements; strides are in bytes.
struct Loop {
  std::uint64_t count = 1;
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};

/// The loops of a copy, outermost first. Neighbouring loops that form one loop on both sides are joined.
std::vector<Loop> loops_of(std::span<const std::uint64_t> shape, std::span<const std::uint64_t> from,
                           std::span<const std::uint64_t> to, std::uint64_t width) {
  std::vector<Loop> loops;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1) loops.push_back({shape[d], from[d] * width, to[d] * width});
  }
  std::ranges::sort(loops, std::greater(), &Loop::to);
  std::vector<Loop> joined;
  for (const Loop& loop : loops) {
    if (!joined.empty() && joined.back().from == loop.from * loop.count && joined.back().to == loop.to * loop.count) {
      joined.back() = {joined.back().count * loop.count, loop.from, loop.to};
    } else {
      joined.push_back(loop);
    }
  }
  return joined;
}

template <class Visit>
void walk(std::span<const Loop> loops, std::uint64_t from, std::uint64_t to, const Visit& visit) {
  if (loops.empty()) return visit(from, to);
  for (std::uint64_t i = 0; i < loops[0].count; ++i) {
    walk(loops.subspan(1), from + i * loops[0].from, to + i * loops[0].to, visit);
  }
}

/// Copies squares that fit in the cache; otherwise every element would cost a cache line. The loops are passed by
/// value, because the compiler must assume that a written byte aliases whatever a reference names.
template <std::size_t kWidth>
void copy_squares(const std::byte* from, std::byte* to, Loop rows, Loop columns) {
  constexpr std::uint64_t kSquare = 32;
  for (std::uint64_t r = 0; r < rows.count; r += kSquare) {
    for (std::uint64_t c = 0; c < columns.count; c += kSquare) {
      for (std::uint64_t i = r; i < std::min(r + kSquare, rows.count); ++i) {
        for (std::uint64_t j = c; j < std::min(c + kSquare, columns.count); ++j) {
          std::memcpy(to + i * rows.to + j * columns.to, from + i * rows.from + j * columns.from, kWidth);
        }
      }
    }
  }
}

template <std::size_t kWidth>
void copy_loops(std::vector<Loop> loops, const std::byte* from, std::byte* to) {
  Loop columns{};  // elements that are adjacent in the target
  Loop rows{};     // elements that are adjacent in the source
  if (!loops.empty()) {
    columns = loops.back();
    loops.pop_back();
  }
  if (columns.from != kWidth && !loops.empty()) {
    const auto next = std::ranges::min_element(loops, {}, &Loop::from);
    rows = *next;
    loops.erase(next);
  }
  const bool is_row = columns.from == kWidth && columns.to == kWidth;
  walk(loops, 0, 0, [&](std::uint64_t first, std::uint64_t at) {
    if (is_row) {
      std::memcpy(to + at, from + first, columns.count * kWidth);
    } else {
      copy_squares<kWidth>(from + first, to + at, rows, columns);
    }
  });
}

}  // namespace

void copy_turned(DType dtype, const Box& box, std::span<const std::byte> from, const MemoryBox& to) {
  const auto common = shard::intersect(box, to.box);
  if (!common) return;
  const std::uint64_t width = bits_of(dtype) / 8;
  const auto strides = strides_of(box.shape);
  const auto to_strides = to.strides.empty() ? strides_of(to.box.shape) : to.strides;
  const std::byte* const first = from.data() + elements_before(*common, box, strides) * width;
  std::byte* const at = to.bytes.data() + elements_before(*common, to.box, to_strides) * width;
  std::vector<Loop> loops = loops_of(common->shape, strides, to_strides, width);
  switch (width) {
    case 1: return copy_loops<1>(std::move(loops), first, at);
    case 2: return copy_loops<2>(std::move(loops), first, at);
    case 4: return copy_loops<4>(std::move(loops), first, at);
    default: return copy_loops<8>(std::move(loops), first, at);
  }
}

}  // namespace cairn::plan
