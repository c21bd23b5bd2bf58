// Runs by mixed-radix arithmetic.
//
// A region inside two row-major boxes is a nest of loops; each loop has a count and one stride per side. Neighbouring
// loops whose strides fit on both sides are one loop, and the innermost one, when both strides are one element, is the
// run itself. What is left has the property that a loop's stride is never below the span of the loops inside it, so a
// file offset is turned into loop indices by one division per loop, and no two runs are adjacent on both sides.
#include "plan/runs.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/checked.hpp"
#include "shard/box_math.hpp"

namespace cairn::plan {
namespace {

using base::add;
using base::mul;

struct Loop {
  std::uint64_t count = 0;
  std::uint64_t file_stride = 0;
  std::uint64_t memory_stride = 0;
};

/// First run and loops around it, outermost first; in elements, or in bytes after to_bytes().
struct Nest {
  std::uint64_t file_begin = 0;
  std::uint64_t memory_begin = 0;
  std::uint64_t run = 0;
  std::vector<Loop> loops;
};

void check_inside(const RunSpace& space) {
  const auto inside = [&](const Box& outer) {
    const std::size_t rank = space.region.shape.size();
    if (space.region.offset.size() != rank || outer.offset.size() != rank || outer.shape.size() != rank) return false;
    for (std::size_t d = 0; d < rank; ++d) {
      if (space.region.offset[d] < outer.offset[d]) return false;
      const std::uint64_t from = space.region.offset[d] - outer.offset[d];
      if (from > outer.shape[d] || space.region.shape[d] > outer.shape[d] - from) return false;
    }
    return true;
  };
  if (!inside(space.stored_box) || !inside(space.memory_box)) {
    throw Error(ErrorKind::kInternal,
                fmt::format("region {} is not inside stored box {} and memory box {}", shard::to_string(space.region),
                            shard::to_string(space.stored_box), shard::to_string(space.memory_box)));
  }
}

/// Requires: the region is not empty.
Nest nest_of(const RunSpace& space) {
  Nest nest;
  nest.run = 1;
  std::uint64_t file_stride = 1;
  std::uint64_t memory_stride = 1;
  std::vector<Loop> inner_first;
  for (std::size_t d = space.region.shape.size(); d-- > 0;) {
    const std::uint64_t count = space.region.shape[d];
    nest.file_begin += mul(space.region.offset[d] - space.stored_box.offset[d], file_stride, "stored box elements");
    nest.memory_begin += mul(space.region.offset[d] - space.memory_box.offset[d], memory_stride, "memory box elements");
    if (count > 1) {
      const Loop loop{count, file_stride, memory_stride};
      if (inner_first.empty() && file_stride == nest.run && memory_stride == nest.run) {
        nest.run *= count;
      } else if (!inner_first.empty() && file_stride == inner_first.back().file_stride * inner_first.back().count &&
                 memory_stride == inner_first.back().memory_stride * inner_first.back().count) {
        inner_first.back().count *= count;
      } else {
        inner_first.push_back(loop);
      }
    }
    file_stride = mul(file_stride, space.stored_box.shape[d], "stored box elements");
    memory_stride = mul(memory_stride, space.memory_box.shape[d], "memory box elements");
  }
  nest.loops.assign(inner_first.rbegin(), inner_first.rend());
  return nest;
}

/// Bytes of `elements`, when that is a whole number.
struct ByteCount {
  std::uint64_t bytes = 0;
  unsigned odd_bits = 0;
};
ByteCount bytes_of(std::uint64_t elements, unsigned bits) {
  const auto rest_bits = static_cast<unsigned>(elements % 8) * bits;
  return {add(mul(elements / 8, bits, "byte size of a box"), rest_bits / 8, "byte size of a box"), rest_bits % 8};
}

bool is_whole(std::uint64_t elements, unsigned bits) { return static_cast<unsigned>(elements % 8) * bits % 8 == 0; }

bool is_whole(const Nest& nest, unsigned bits) {
  return is_whole(nest.file_begin, bits) && is_whole(nest.memory_begin, bits) && is_whole(nest.run, bits) &&
         std::all_of(nest.loops.begin(), nest.loops.end(), [&](const Loop& loop) {
           return is_whole(loop.file_stride, bits) && is_whole(loop.memory_stride, bits);
         });
}

/// The same in bytes of file and memory. Throws when a run would begin or end inside a byte.
Nest byte_nest(const RunSpace& space) {
  Nest nest = nest_of(space);
  const unsigned bits = bits_of(space.dtype);
  if (!is_whole(nest, bits)) {
    throw Error(ErrorKind::kInternal,
                fmt::format("region {} of a {} tensor begins or ends inside a byte of stored box {} or memory box {}",
                            shard::to_string(space.region), name_of(space.dtype), shard::to_string(space.stored_box),
                            shard::to_string(space.memory_box)));
  }
  nest.file_begin = add(space.stored_offset, bytes_of(nest.file_begin, bits).bytes, "file offset of a region");
  nest.memory_begin = bytes_of(nest.memory_begin, bits).bytes;
  nest.run = bytes_of(nest.run, bits).bytes;
  for (Loop& loop : nest.loops) {
    loop.file_stride = bytes_of(loop.file_stride, bits).bytes;
    loop.memory_stride = bytes_of(loop.memory_stride, bits).bytes;
  }
  return nest;
}

/// One past the last byte on the side whose first byte is `begin`; what proves that no later sum can wrap.
std::uint64_t end_of(const Nest& nest, std::uint64_t begin, std::uint64_t Loop::*stride) {
  std::uint64_t end = add(begin, nest.run, "end of a region");
  for (const Loop& loop : nest.loops) {
    end = add(end, mul(loop.count - 1, loop.*stride, "end of a region"), "end of a region");
  }
  return end;
}

/// The odometer: indices of the loops and the run that they select.
class RunCursor {
 public:
  explicit RunCursor(const Nest& nest)
      : nest_(nest), index_(nest.loops.size(), 0), file_(nest.file_begin), memory_(nest.memory_begin) {}

  /// Moves to the first run that ends after file offset `at`; false when there is none.
  bool seek(std::uint64_t at) {
    std::uint64_t rest = at > file_ ? at - file_ : 0;
    for (std::size_t d = 0; d < index_.size(); ++d) {
      const Loop& loop = nest_.loops[d];
      index_[d] = std::min(rest / loop.file_stride, loop.count - 1);
      rest -= index_[d] * loop.file_stride;
      file_ += index_[d] * loop.file_stride;
      memory_ += index_[d] * loop.memory_stride;
    }
    return rest < nest_.run || next();
  }

  bool next() {
    for (std::size_t d = index_.size(); d-- > 0;) {
      const Loop& loop = nest_.loops[d];
      if (++index_[d] < loop.count) {
        file_ += loop.file_stride;
        memory_ += loop.memory_stride;
        return true;
      }
      file_ -= (loop.count - 1) * loop.file_stride;
      memory_ -= (loop.count - 1) * loop.memory_stride;
      index_[d] = 0;
    }
    return false;
  }

  [[nodiscard]] std::uint64_t file() const { return file_; }
  [[nodiscard]] std::uint64_t memory() const { return memory_; }

 private:
  const Nest& nest_;
  std::vector<std::uint64_t> index_;
  std::uint64_t file_;
  std::uint64_t memory_;
};

/// Bytes of the nest that lie before file offset `at`.
std::uint64_t bytes_before(const Nest& nest, std::uint64_t at) {
  if (at <= nest.file_begin) return 0;
  std::uint64_t inside = nest.run;
  for (const Loop& loop : nest.loops) inside *= loop.count;
  std::uint64_t rest = at - nest.file_begin;
  std::uint64_t before = 0;
  for (const Loop& loop : nest.loops) {
    inside /= loop.count;
    const std::uint64_t full = std::min(rest / loop.file_stride, loop.count);
    before += full * inside;
    if (full == loop.count) return before;
    rest -= full * loop.file_stride;
  }
  return before + std::min(rest, nest.run);
}

}  // namespace

bool is_byte_aligned(const RunSpace& space) {
  if (shard::is_empty(space.region) || bits_of(space.dtype) % 8 == 0) return true;
  check_inside(space);
  return is_whole(nest_of(space), bits_of(space.dtype));
}

ByteRange file_span(const RunSpace& space) {
  if (shard::is_empty(space.region)) return {};
  check_inside(space);
  const Nest nest = nest_of(space);
  const unsigned bits = bits_of(space.dtype);
  const ByteCount begin = bytes_of(nest.file_begin, bits);
  const ByteCount end = bytes_of(end_of(nest, nest.file_begin, &Loop::file_stride), bits);
  const std::uint64_t end_bytes = add(end.bytes, end.odd_bits != 0 ? 1 : 0, "file span of a region");
  return {add(space.stored_offset, begin.bytes, "file span of a region"),
          add(space.stored_offset, end_bytes, "file span of a region")};
}

void for_each_run(const RunSpace& space, std::uint64_t clip_begin, std::uint64_t clip_end,
                  const std::function<void(const Run&)>& visit) {
  if (clip_begin >= clip_end || shard::is_empty(space.region)) return;
  check_inside(space);
  const Nest nest = byte_nest(space);
  end_of(nest, nest.file_begin, &Loop::file_stride);
  end_of(nest, nest.memory_begin, &Loop::memory_stride);
  RunCursor cursor(nest);
  if (!cursor.seek(clip_begin)) return;
  do {
    if (cursor.file() >= clip_end) return;
    const std::uint64_t skip = clip_begin > cursor.file() ? clip_begin - cursor.file() : 0;
    const std::uint64_t length = std::min(nest.run, clip_end - cursor.file()) - skip;
    visit({cursor.file() + skip, cursor.memory() + skip, length});
  } while (cursor.next());
}

std::uint64_t run_bytes(const RunSpace& space, std::uint64_t clip_begin, std::uint64_t clip_end) {
  if (clip_begin >= clip_end || shard::is_empty(space.region)) return 0;
  check_inside(space);
  const Nest nest = byte_nest(space);
  end_of(nest, nest.file_begin, &Loop::file_stride);
  return bytes_before(nest, clip_end) - bytes_before(nest, clip_begin);
}

}  // namespace cairn::plan
