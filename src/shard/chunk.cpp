// The chunk rules of one dimension; chunk.hpp names the formulas and their sources.
#include "shard/chunk.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/checked.hpp"
#include "shard/box_math.hpp"

namespace cairn::shard {
namespace {

struct Part {
  std::uint64_t base;
  std::uint64_t size;
};

void append(std::vector<Range>& out, Range range) {
  if (range.begin >= range.end) return;
  if (!out.empty() && out.back().end == range.begin) {
    out.back().end = range.end;
  } else {
    out.push_back(range);
  }
}

bool has_parts(const ChunkSpec& spec) { return !spec.parts.empty() || spec.equal_parts > 1; }

// Divides `n` elements, the whole dimension or one period, into parts.
std::vector<Part> parts_of(const ChunkSpec& spec, std::uint64_t n) {
  std::vector<Part> parts;
  std::uint64_t base = 0;
  if (spec.parts.empty()) {
    for (std::uint64_t i = 0; i < spec.equal_parts; ++i, base += n / spec.equal_parts) {
      parts.push_back({base, n / spec.equal_parts});
    }
    return parts;
  }
  for (const std::uint64_t size : spec.parts) {
    parts.push_back({base, size});
    base += size;
  }
  return parts;
}

std::string parts_problem(const ChunkSpec& spec, std::uint64_t n) {
  if (spec.parts.empty()) {
    return n % spec.equal_parts == 0 ? "" : fmt::format("{} does not divide into {} equal parts", n, spec.equal_parts);
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t size : spec.parts) {
    const auto next = base::try_add(sum, size);
    if (!next) return "its parts are too large";
    sum = *next;
  }
  return sum == n ? "" : fmt::format("its parts add up to {}, not {}", sum, n);
}

// The rule without row maps, in elements. Only kStrided and kRows have several ranges.
std::vector<Range> simple_chunk(const ChunkSpec& spec, std::uint64_t n, std::uint64_t ways, std::uint64_t at) {
  const std::uint64_t units = n / spec.unit;
  const auto scaled_up = [&](Range r) { return Range{r.begin * spec.unit, r.end * spec.unit}; };
  std::vector<Range> out;
  switch (spec.kind) {
    case ChunkKind::kEven: append(out, scaled_up({units / ways * at, units / ways * (at + 1)})); break;
    case ChunkKind::kTorch: append(out, scaled_up(torch_chunk(units, ways, at))); break;
    case ChunkKind::kBalanced: append(out, scaled_up(balanced_chunk(units, ways, at))); break;
    case ChunkKind::kStrided:
      for (std::uint64_t piece = 0; piece < spec.split_factor; ++piece) {
        append(out, scaled_up(torch_chunk(units, ways * spec.split_factor, at + piece * ways)));
      }
      break;
    case ChunkKind::kExplicit: append(out, {spec.boundaries[at], spec.boundaries[at + 1]}); break;
    case ChunkKind::kRows:
      for (const Range& range : spec.rows[at]) append(out, range);
      break;
  }
  return out;
}

std::string explicit_problem(const ChunkSpec& spec, std::uint64_t n, std::uint64_t ways) {
  if (spec.boundaries.size() != ways + 1) {
    return fmt::format("{} boundaries are given where {} positions need {}", spec.boundaries.size(), ways, ways + 1);
  }
  if (spec.boundaries.front() != 0 || spec.boundaries.back() != n || !std::ranges::is_sorted(spec.boundaries)) {
    return fmt::format("its boundaries must ascend from 0 to {}", n);
  }
  return "";
}

std::string rows_problem(const ChunkSpec& spec, std::uint64_t n, std::uint64_t ways) {
  if (spec.rows.size() != ways) return fmt::format("rows are given for {} positions of {}", spec.rows.size(), ways);
  for (const auto& ranges : spec.rows) {
    for (const Range& range : ranges) {
      if (range.begin > range.end || range.end > n) {
        return fmt::format("rows [{}, {}) do not lie in 0..{}", range.begin, range.end, n);
      }
    }
  }
  return "";
}

std::string simple_problem(const ChunkSpec& spec, std::uint64_t n, std::uint64_t ways) {
  if (n % spec.unit != 0) return fmt::format("{} is not a multiple of the unit {}", n, spec.unit);
  switch (spec.kind) {
    case ChunkKind::kEven:
      if (n / spec.unit % ways == 0) return "";
      return spec.unit == 1 ? fmt::format("{} does not divide by {}", n, ways)
                            : fmt::format("{} units of {} do not divide by {}", n / spec.unit, spec.unit, ways);
    case ChunkKind::kExplicit: return explicit_problem(spec, n, ways);
    case ChunkKind::kRows: return rows_problem(spec, n, ways);
    case ChunkKind::kStrided: return base::try_mul(ways, spec.split_factor) ? "" : "its split factor is too large";
    default: return "";
  }
}

std::string scale_problem(const ChunkSpec& spec, std::uint64_t n, std::uint64_t ways) {
  if (base::ceil_div(spec.scaled, spec.block) != n) {
    return fmt::format("{} scales do not match a weight of {} in blocks of {}", n, spec.scaled, spec.block);
  }
  ChunkSpec weight = spec;
  weight.block = 0;
  if (std::string problem = chunk_problem(weight, spec.scaled, ways); !problem.empty()) return problem;
  for (std::uint64_t at = 0; at < ways; ++at) {
    for (const Range& range : chunk(weight, spec.scaled, ways, at)) {
      for (const std::uint64_t cut : {range.begin, range.end}) {
        if (cut % spec.block == 0 || cut == spec.scaled) continue;
        return fmt::format("its weight is cut at element {} of {}, which is not a multiple of the scale block {}", cut,
                           spec.scaled, spec.block);
      }
    }
  }
  return "";
}

// Whether b continues a along one dimension, and also in memory: dimensions before it have one element,
// dimensions after it are equal.
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

std::uint64_t size_of(const std::vector<Range>& ranges) {
  std::uint64_t n = 0;
  for (const Range& range : ranges) n += range.end - range.begin;
  return n;
}

Range torch_chunk(std::uint64_t n, std::uint64_t ways, std::uint64_t at) {
  const std::uint64_t size = base::ceil_div(n, ways);
  return {std::min(n, at * size), std::min(n, (at + 1) * size)};
}

Range balanced_chunk(std::uint64_t n, std::uint64_t ways, std::uint64_t at) {
  const auto start = [&](std::uint64_t i) { return n / ways * i + std::min(i, n % ways); };
  return {start(at), start(at + 1)};
}

std::string chunk_problem(const ChunkSpec& spec, std::uint64_t n, std::uint64_t ways) {
  if (spec.block != 0) return scale_problem(spec, n, ways);
  if (spec.period != 0) {
    if (n % spec.period != 0) return fmt::format("{} is not a multiple of the period {}", n, spec.period);
    if (std::string problem = parts_problem(spec, spec.period); !problem.empty()) return problem;
    return simple_problem(spec, n / spec.period, ways);
  }
  if (!has_parts(spec)) return simple_problem(spec, n, ways);
  if (std::string problem = parts_problem(spec, n); !problem.empty()) return problem;
  if (spec.interleave != 0) {
    for (const Part& part : parts_of(spec, n)) {
      if (part.size % spec.interleave == 0) continue;
      return fmt::format("a part of {} does not divide into {} groups", part.size, spec.interleave);
    }
    return simple_problem(spec, spec.interleave, ways);
  }
  for (const Part& part : parts_of(spec, n)) {
    if (std::string problem = simple_problem(spec, part.size, ways); !problem.empty()) return problem;
  }
  return "";
}

std::vector<Range> chunk(const ChunkSpec& spec, std::uint64_t n, std::uint64_t ways, std::uint64_t at) {
  std::vector<Range> out;
  if (spec.block != 0) {
    ChunkSpec weight = spec;
    weight.block = 0;
    for (const Range& range : chunk(weight, spec.scaled, ways, at)) {
      append(out, {range.begin / spec.block, base::ceil_div(range.end, spec.block)});
    }
    return out;
  }
  if (spec.period != 0) {
    const std::vector<Range> groups = simple_chunk(spec, n / spec.period, ways, at);
    for (const Part& part : parts_of(spec, spec.period)) {
      for (const Range& range : groups) {
        for (std::uint64_t g = range.begin; g < range.end; ++g) {
          append(out, {g * spec.period + part.base, g * spec.period + part.base + part.size});
        }
      }
    }
    return out;
  }
  if (!has_parts(spec)) return simple_chunk(spec, n, ways, at);
  const std::vector<Part> parts = parts_of(spec, n);
  if (spec.interleave != 0) {
    for (const Range& range : simple_chunk(spec, spec.interleave, ways, at)) {
      for (std::uint64_t g = range.begin; g < range.end; ++g) {
        for (const Part& part : parts) {
          const std::uint64_t size = part.size / spec.interleave;
          append(out, {part.base + g * size, part.base + (g + 1) * size});
        }
      }
    }
    return out;
  }
  for (const Part& part : parts) {
    for (const Range& range : simple_chunk(spec, part.size, ways, at)) {
      append(out, {part.base + range.begin, part.base + range.end});
    }
  }
  return out;
}

std::vector<std::uint64_t> held_sizes(const ChunkSpec& spec, std::uint64_t n, std::uint64_t ways) {
  std::set<std::uint64_t> sizes;
  const auto add = [&](std::uint64_t at) { sizes.insert(size_of(chunk(spec, n, ways, at))); };
  const bool one_part = spec.parts.empty() && spec.interleave == 0 && spec.period == 0 && spec.block == 0;
  if (one_part &&
      (spec.kind == ChunkKind::kEven || spec.kind == ChunkKind::kTorch || spec.kind == ChunkKind::kBalanced)) {
    // Meshes can have millions of ranks: checks the first and last positions, and for torch.chunk the short chunk's.
    add(0);
    add(ways - 1);
    const std::uint64_t units = n / spec.equal_parts / spec.unit;
    if (spec.kind == ChunkKind::kTorch && units != 0) add(std::min(ways - 1, units / base::ceil_div(units, ways)));
  } else {
    for (std::uint64_t at = 0; at < ways; ++at) add(at);
  }
  return {sizes.begin(), sizes.end()};
}

std::vector<Range> compose(const std::vector<Range>& outer, const std::vector<Range>& inner) {
  std::vector<Range> out;
  for (const Range& want : inner) {
    std::uint64_t at = 0;  // element of the outer list where `range` begins
    for (const Range& range : outer) {
      const std::uint64_t size = range.end - range.begin;
      const std::uint64_t begin = std::max(want.begin, at);
      const std::uint64_t end = std::min(want.end, at + size);
      if (begin < end) append(out, {range.begin + (begin - at), range.begin + (end - at)});
      at += size;
    }
  }
  return out;
}

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
