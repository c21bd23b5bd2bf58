// Runs by mixed-radix arithmetic.
//
// A region inside two row-major boxes is a nest of loops; each loop has a count and one stride per side. Neighbouring
// loops whose strides fit on both sides become one loop. If the innermost loop has stride 1 on both sides, this loop is
// the run itself. In the remaining loops a stride is never below the span of the loops inside, so one division per loop
// turns a file offset into loop indices. No two runs are adjacent on both sides, except at the border of two planes of
// a memory box with strides.
#include "plan/runs.hpp"

#include <fmt/core.h>

#include <cstring>
#include <optional>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "cairn/error.hpp"
#include "plan/transfers.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan {
namespace {

using base::add;
using base::mul;

bool is_inside(const Box& region, const Box& outer) {
  const std::size_t rank = region.shape.size();
  if (region.offset.size() != rank || outer.offset.size() != rank || outer.shape.size() != rank) return false;
  for (std::size_t d = 0; d < rank; ++d) {
    if (region.offset[d] < outer.offset[d]) return false;
    const std::uint64_t from = region.offset[d] - outer.offset[d];
    if (from > outer.shape[d] || region.shape[d] > outer.shape[d] - from) return false;
  }
  return true;
}

void check_inside(const Box& region, const Box& outer, const char* what) {
  if (is_inside(region, outer)) return;
  throw base::internal_error(
      fmt::format("region {} is not inside {} {}", shard::to_string(region), what, shard::to_string(outer)));
}

/// The layout of a box in memory.
struct Places {
  const Box& box;
  std::span<const std::uint64_t> strides;  ///< as MemoryBox::strides
};

/// The file stride of the next outer dimension, divided by the file stride of this dimension.
std::uint64_t elements_along(const format::StoredBox& stored, std::size_t dimension) {
  return dimension + 1 == stored.box.shape.size() ? format::stored_row_elems(stored) : stored.box.shape[dimension];
}

/// The runs in elements. Requires: the region is not empty.
Runs element_runs(const format::StoredBox& stored, const Places& memory, const Box& region) {
  const Box& stored_box = stored.box;
  const Box& memory_box = memory.box;
  check_inside(region, stored_box, "stored box");
  check_inside(region, memory_box, "memory box");
  if (region.shape.size() > kMaxDimensions) {
    throw base::internal_error(fmt::format("region {} has {} dimensions, at most {} are supported",
                                           shard::to_string(region), region.shape.size(), kMaxDimensions));
  }
  Runs runs;
  runs.run_bytes = 1;
  std::uint64_t file_stride = 1;
  std::uint64_t memory_stride = 1;
  for (std::size_t d = region.shape.size(); d-- > 0;) {  // while they are added, levels are innermost first
    const std::uint64_t count = region.shape[d];
    if (!memory.strides.empty()) memory_stride = memory.strides[d];
    runs.file_begin += mul(region.offset[d] - stored_box.offset[d], file_stride, "stored box elements");
    runs.memory_begin += mul(region.offset[d] - memory_box.offset[d], memory_stride, "memory box elements");
    if (count > 1) {
      Runs::Level* const inner = runs.depth == 0 ? nullptr : &runs.levels[runs.depth - 1];
      if (inner == nullptr && file_stride == runs.run_bytes && memory_stride == runs.run_bytes) {
        runs.run_bytes *= count;
      } else if (inner != nullptr && file_stride == inner->file_stride * inner->count &&
                 memory_stride == inner->memory_stride * inner->count) {
        inner->count *= count;
      } else {
        runs.levels[runs.depth++] = {count, file_stride, memory_stride};
      }
    }
    file_stride = mul(file_stride, elements_along(stored, d), "stored box elements");
    if (memory.strides.empty()) memory_stride = mul(memory_stride, memory_box.shape[d], "memory box elements");
  }
  std::reverse(runs.levels.begin(), runs.levels.begin() + runs.depth);
  return runs;
}

/// Bytes of `elements`; with rounded_up a partial last byte counts as a whole byte.
std::uint64_t bytes_of(std::uint64_t elements, unsigned bits, bool rounded_up = false) {
  const std::uint64_t rest_bits = elements % 8 * bits;
  const std::uint64_t rest_bytes = rest_bits / 8 + (rounded_up && rest_bits % 8 != 0 ? 1 : 0);
  return add(mul(elements / 8, bits, "byte size of a box"), rest_bytes, "byte size of a box");
}

bool is_whole(std::uint64_t elements, unsigned bits) { return elements % 8 * bits % 8 == 0; }

bool is_whole(const Runs& runs, unsigned bits) {
  return is_whole(runs.file_begin, bits) && is_whole(runs.memory_begin, bits) && is_whole(runs.run_bytes, bits) &&
         std::all_of(runs.levels.begin(), runs.levels.begin() + runs.depth, [&](const Runs::Level& level) {
           return is_whole(level.file_stride, bits) && is_whole(level.memory_stride, bits);
         });
}

/// Throws if the end (one past the last byte) of the side that begins at `begin` does not fit in 64 bits, so later sums
/// cannot wrap.
void check_end(const Runs& runs, std::uint64_t begin, std::uint64_t Runs::Level::*stride) {
  std::uint64_t end = add(begin, runs.run_bytes, "end of a region");
  for (std::size_t l = 0; l < runs.depth; ++l) {
    const Runs::Level& level = runs.levels[l];
    end = add(end, mul(level.count - 1, level.*stride, "end of a region"), "end of a region");
  }
}

/// The common part of both forms of runs_of().
Runs make_runs(DType dtype, const format::StoredBox& stored, const Places& memory, const Box& region) {
  const Box& memory_box = memory.box;
  if (shard::is_empty(region)) {
    check_inside(region, stored.box, "stored box");
    check_inside(region, memory_box, "memory box");
    Runs none;
    none.file = stored.file;
    none.file_begin = stored.offset_bytes;
    return none;
  }
  Runs runs = element_runs(stored, memory, region);
  const unsigned bits = bits_of(dtype);
  if (!is_whole(runs, bits)) {
    throw base::internal_error(fmt::format(
        "region {} of a {} tensor begins or ends inside a byte of stored box {} or memory box {}",
        shard::to_string(region), name_of(dtype), shard::to_string(stored.box), shard::to_string(memory_box)));
  }
  runs.file = stored.file;
  runs.file_begin = add(stored.offset_bytes, bytes_of(runs.file_begin, bits), "file offset of a region");
  runs.memory_begin = bytes_of(runs.memory_begin, bits);
  runs.run_bytes = bytes_of(runs.run_bytes, bits);
  runs.bytes = runs.run_bytes;
  for (std::size_t l = 0; l < runs.depth; ++l) {
    Runs::Level& level = runs.levels[l];
    level.file_stride = bytes_of(level.file_stride, bits);
    level.memory_stride = bytes_of(level.memory_stride, bits);
    runs.bytes = mul(runs.bytes, level.count, "bytes of a region");
  }
  check_end(runs, runs.file_begin, &Runs::Level::file_stride);
  check_end(runs, runs.memory_begin, &Runs::Level::memory_stride);
  return runs;
}

using LevelBytes = std::array<std::uint64_t, Runs::kMaxDepth>;

/// For each level, the number of bytes in one iteration of its loop.
LevelBytes level_bytes(const Runs& runs) {
  LevelBytes out;
  std::uint64_t bytes = runs.run_bytes;
  for (std::size_t l = runs.depth; l-- > 0;) {
    out[l] = bytes;
    bytes *= runs.levels[l].count;
  }
  return out;
}

// Runs on the wire: file, local, memory rank and depth (bit 31: device memory) as 32-bit numbers; file_begin,
// memory_begin, run_bytes and bytes as 64-bit numbers; then count, file stride and memory stride of each level.
// Little-endian, like all ranks of a job.

constexpr std::uint32_t kDeviceMemory = 1U << 31;

struct Head {
  std::array<std::uint32_t, 4> numbers{};
  std::array<std::uint64_t, 4> sizes{};
};
static_assert(sizeof(Head) == kWireBytes && sizeof(Runs::Level) == kWireLevelBytes, "no padding");

void require(bool condition, const Runs& runs, const char* what, const char* file = __builtin_FILE(),
             int line = __builtin_LINE()) {
  if (!condition) throw base::internal_error(fmt::format("transfer of {}: {}", to_string(runs), what), file, line);
}

/// One past the last byte of the side that begins at `begin`. Nullopt if it does not fit in 64 bits, or if a level's
/// stride is below the span of the levels inside it.
std::optional<std::uint64_t> checked_end(const Runs& runs, std::uint64_t begin, std::uint64_t Runs::Level::*stride) {
  std::optional<std::uint64_t> span = runs.run_bytes;
  for (std::size_t l = runs.depth; l-- > 0 && span;) {
    const Runs::Level& level = runs.levels[l];
    if (level.*stride < *span) return std::nullopt;
    const auto more = base::try_mul(level.count - 1, level.*stride);
    span = more ? base::try_add(*span, *more) : std::nullopt;
  }
  return span ? base::try_add(begin, *span) : std::nullopt;
}

std::span<const std::byte> take(std::span<const std::byte>& from, std::size_t bytes) {
  if (bytes > from.size()) {
    throw base::internal_error(fmt::format("a message of transfers ends {} bytes too soon", bytes - from.size()));
  }
  const auto taken = from.first(bytes);
  from = from.subspan(bytes);
  return taken;
}

}  // namespace

Runs runs_of(DType dtype, const format::StoredBox& stored, const MemoryBox& memory, const Box& region) {
  return make_runs(dtype, stored, {memory.box, memory.strides}, region);
}

Runs runs_of(DType dtype, const format::StoredBox& stored, const Box& memory_box, const Box& region) {
  return make_runs(dtype, stored, {memory_box, {}}, region);
}

bool is_byte_aligned(DType dtype, const format::StoredBox& stored, const Box& memory_box, const Box& region) {
  if (shard::is_empty(region) || bits_of(dtype) % 8 == 0) return true;
  return is_whole(element_runs(stored, {memory_box, {}}, region), bits_of(dtype));
}

FileRange file_span(DType dtype, const format::StoredBox& stored, const Box& region) {
  if (shard::is_empty(region)) return {stored.file, 0, 0};
  check_inside(region, stored.box, "stored box");
  std::uint64_t stride = 1;
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  for (std::size_t d = region.shape.size(); d-- > 0;) {
    const std::uint64_t from = region.offset[d] - stored.box.offset[d];
    first += mul(from, stride, "stored box elements");
    last += mul(from + region.shape[d] - 1, stride, "stored box elements");
    stride = mul(stride, elements_along(stored, d), "stored box elements");
  }
  const unsigned bits = bits_of(dtype);
  return {stored.file, add(stored.offset_bytes, bytes_of(first, bits), "file span of a region"),
          add(stored.offset_bytes, bytes_of(last + 1, bits, true), "file span of a region")};
}

std::uint64_t Runs::bytes_before(std::uint64_t file_offset) const {
  if (file_offset <= file_begin) return 0;
  if (file_offset >= file_end()) return bytes;
  const LevelBytes inside = level_bytes(*this);
  std::uint64_t rest = file_offset - file_begin;
  std::uint64_t before = 0;
  for (std::size_t l = 0; l < depth; ++l) {
    const std::uint64_t full = std::min(rest / levels[l].file_stride, levels[l].count);
    before += full * inside[l];
    if (full == levels[l].count) return before;
    rest -= full * levels[l].file_stride;
  }
  return before + std::min(rest, run_bytes);
}

void MemorySpan::cover(const MemorySpan& other) {
  if (other.begin == other.end) return;
  if (begin == end) {
    *this = other;
    return;
  }
  begin = std::min(begin, other.begin);
  end = std::max(end, other.end);
}

MemorySpan memory_span(const Runs& runs, const Slice& slice) {
  if (slice.bytes == 0) return {};
  const std::uint64_t first = RunCursor(runs, slice.first, 1).next().memory_offset;
  const std::uint64_t last = RunCursor(runs, slice.first + slice.bytes - 1, 1).next().memory_offset;
  return {first, last + 1};
}

RunCursor::RunCursor(const Runs& runs, std::uint64_t first, std::uint64_t bytes)
    : runs_(runs), file_offset_(runs.file_begin), memory_offset_(runs.memory_begin), left_(bytes) {
  if (first > runs.bytes || bytes > runs.bytes - first) {
    throw base::internal_error(
        fmt::format("{} bytes from byte {} on are asked for of runs of {} bytes", bytes, first, runs.bytes));
  }
  if (bytes == 0) return;
  const LevelBytes inside = level_bytes(runs);
  std::uint64_t rest = first;
  for (std::size_t l = 0; l < runs.depth; ++l) {
    const Runs::Level& level = runs.levels[l];
    index_[l] = rest / inside[l];
    rest -= index_[l] * inside[l];
    file_offset_ += index_[l] * level.file_stride;
    memory_offset_ += index_[l] * level.memory_stride;
  }
  inside_ = rest;
}

RunBatch RunCursor::next() {
  const std::uint64_t run = runs_.run_bytes;
  if (inside_ != 0 || left_ < run || runs_.depth == 0) {  // a partial run, or the only one
    const RunBatch cut{file_offset_ + inside_, memory_offset_ + inside_, std::min(run - inside_, left_), 1, 0, 0};
    left_ -= cut.length_bytes;
    inside_ += cut.length_bytes;
    if (inside_ == run) {
      inside_ = 0;
      advance(1);
    }
    return cut;
  }
  const Runs::Level& level = runs_.levels[runs_.depth - 1];
  const std::uint64_t count = std::min(level.count - index_[runs_.depth - 1], left_ / run);
  const RunBatch batch{file_offset_, memory_offset_, run, count, level.file_stride, level.memory_stride};
  left_ -= count * run;
  advance(count);
  return batch;
}

void RunCursor::advance(std::uint64_t runs) {
  for (std::size_t l = runs_.depth; l-- > 0;) {
    const Runs::Level& level = runs_.levels[l];
    index_[l] += runs;
    file_offset_ += runs * level.file_stride;
    memory_offset_ += runs * level.memory_stride;
    if (index_[l] < level.count) return;
    index_[l] = 0;
    file_offset_ -= level.count * level.file_stride;
    memory_offset_ -= level.count * level.memory_stride;
    runs = 1;
  }
}

std::string to_string(const Runs& runs) {
  return fmt::format("{} bytes from memory of rank {} to extents of rank {}", runs.bytes, runs.memory_rank,
                     runs.file_rank);
}

void check_runs(const Runs& runs) {
  require(runs.depth <= Runs::kMaxDepth, runs, "it has too many levels");
  require(runs.run_bytes != 0, runs, "its runs have no bytes");
  std::optional<std::uint64_t> bytes = runs.run_bytes;
  for (std::size_t l = 0; l < runs.depth; ++l) {
    require(runs.levels[l].count > 1, runs, "a level has no more than one run");
    if (bytes) bytes = base::try_mul(*bytes, runs.levels[l].count);
  }
  require(bytes == runs.bytes, runs, "its levels do not add up to these bytes");
  require(checked_end(runs, runs.file_begin, &Runs::Level::file_stride).has_value(), runs,
          "its runs in the file lie in each other, or end beyond 2^64");
  require(checked_end(runs, runs.memory_begin, &Runs::Level::memory_stride).has_value(), runs,
          "its runs in memory lie in each other, or end beyond 2^64");
}

void append_runs(base::Bytes& out, const Runs& runs) {
  const std::uint32_t depth = runs.depth | (runs.memory == Memory::kDevice ? kDeviceMemory : 0);
  const Head head{{runs.file, runs.local, base::narrow<std::uint32_t>(runs.memory_rank, "memory rank"), depth},
                  {runs.file_begin, runs.memory_begin, runs.run_bytes, runs.bytes}};
  const auto append = [&](const void* data, std::size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    out.insert(out.end(), from, from + bytes);
  };
  append(&head, sizeof head);
  append(runs.levels.data(), runs.depth * sizeof(Runs::Level));
}

std::vector<Runs> parse_runs(std::span<const std::byte> bytes, int file_rank) {
  std::vector<Runs> out;
  while (!bytes.empty()) {
    Head head;
    std::memcpy(&head, take(bytes, sizeof head).data(), sizeof head);
    Runs runs;
    runs.file = head.numbers[0];
    runs.local = head.numbers[1];
    runs.memory_rank = base::narrow<int>(head.numbers[2], "memory rank of a transfer");
    runs.depth = head.numbers[3] & ~kDeviceMemory;
    runs.memory = (head.numbers[3] & kDeviceMemory) != 0 ? Memory::kDevice : Memory::kHost;
    runs.file_rank = file_rank;
    runs.file_begin = head.sizes[0];
    runs.memory_begin = head.sizes[1];
    runs.run_bytes = head.sizes[2];
    runs.bytes = head.sizes[3];
    require(runs.depth <= Runs::kMaxDepth, runs, "it has too many levels");
    const auto levels = take(bytes, runs.depth * sizeof(Runs::Level));
    if (runs.depth != 0) std::memcpy(runs.levels.data(), levels.data(), levels.size());
    check_runs(runs);
    out.push_back(runs);
  }
  return out;
}

}  // namespace cairn::plan
