// Runs: the places of a region's bytes in a file and in memory. The physical description of the data that is moved.
//
// A stored box (bytes in a file) and a memory box (bytes at a pointer) both hold their elements row-major, the memory
// box perhaps with gaps. In row-major order, the elements of a region inside both boxes ascend both in the file and in
// memory. They form equal runs of bytes, contiguous on both sides, in a nest of loops with a stride for each side. The
// rank that has the memory makes the runs; from then on no rank needs the tensor, its dtype or boxes. Runs copy bytes,
// and never transpose them.
//
// The bytes are numbered from 0 in that order. Every position is found by division, so a window, a message or a resumed
// copy can begin anywhere at the same cost, without a saved state.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "cairn/box.hpp"
#include "cairn/dtype.hpp"
#include "format/stored_checkpoint.hpp"
#include "plan/extents.hpp"
#include "plan/pieces.hpp"

namespace cairn::plan {

struct Runs {
  struct Level {
    std::uint64_t count = 0;
    std::uint64_t file_stride = 0;
    std::uint64_t memory_stride = 0;

    friend bool operator==(const Level&, const Level&) = default;
  };
  /// The last dimension is never a level: it is part of the run, or the region has one element along it.
  static constexpr std::size_t kMaxDepth = kMaxDimensions - 1;

  std::uint32_t file = 0;
  std::uint32_t local = 0;         ///< number of the memory box of memory_rank
  Memory memory = Memory::kHost;   ///< kind of memory; other processes and messages must not access device memory
  int memory_rank = 0;             ///< owner of the memory
  int file_rank = 0;               ///< owner of the extents: the aggregator
  std::uint64_t file_begin = 0;    ///< beginning of the first run in the file
  std::uint64_t memory_begin = 0;  ///< beginning of the first run in the memory box
  std::uint64_t run_bytes = 0;
  std::uint64_t bytes = 0;  ///< bytes of all runs
  std::uint32_t depth = 0;
  std::array<Level, kMaxDepth> levels{};  ///< outermost first; a stride is never below the span of the levels inside it

  /// Offsets one past the last byte.
  [[nodiscard]] std::uint64_t file_end() const { return file_begin + span(&Level::file_stride); }
  [[nodiscard]] std::uint64_t memory_end() const { return memory_begin + span(&Level::memory_stride); }
  /// Number of bytes of the runs that lie before this offset of the file.
  [[nodiscard]] std::uint64_t bytes_before(std::uint64_t file_offset) const;

  friend bool operator==(const Runs&, const Runs&) = default;

 private:
  [[nodiscard]] std::uint64_t span(std::uint64_t Level::*stride) const {
    std::uint64_t bytes_of_span = run_bytes;
    for (std::size_t l = 0; l < depth; ++l) bytes_of_span += (levels[l].count - 1) * (levels[l].*stride);
    return bytes_of_span;
  }
};

/// Bytes [first, first + bytes) of the Runs with number `runs` in a list.
struct Slice {
  std::uint32_t runs = 0;
  std::uint64_t first = 0;
  std::uint64_t bytes = 0;
};

/// Bytes [begin, end) of a memory box; empty at first.
struct MemorySpan {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  [[nodiscard]] std::uint64_t bytes() const { return end - begin; }
  /// Grows to the smallest span that contains both spans.
  void cover(const MemorySpan& other);
  friend bool operator==(const MemorySpan&, const MemorySpan&) = default;
};

/// The bytes of the memory box from the first to the last byte of a slice of `runs`.
MemorySpan memory_span(const Runs& runs, const Slice& slice);

/// The runs of `region`, which lies inside both boxes (all in global coordinates). The caller sets ranks, `local`
/// and `memory`. Runs are maximal: without strides no two are adjacent on both sides. A memory box that is a plain Box
/// has no gaps. Throws Error(kInternal) for a region outside its boxes or of too many dimensions, a region that cuts a
/// byte of a sub-byte dtype, and offsets that do not fit in 64 bits, so later sums cannot wrap.
Runs runs_of(DType dtype, const format::StoredBox& stored, const MemoryBox& memory, const Box& region);
Runs runs_of(DType dtype, const format::StoredBox& stored, const Box& memory_box, const Box& region);

/// Whether every run of the region starts and ends on a byte boundary in file and memory, as runs_of() requires. This
/// is always true for dtypes of 8 bits and more.
bool is_byte_aligned(DType dtype, const format::StoredBox& stored, const Box& memory_box, const Box& region);

/// Smallest byte range of the file that contains a region of a stored box; empty for an empty region.
FileRange file_span(DType dtype, const format::StoredBox& stored, const Box& region);

/// One run: `length_bytes` at `file_offset` of the file and at `memory_offset` from the start of the memory box.
struct Run {
  std::uint64_t file_offset = 0;
  std::uint64_t memory_offset = 0;
  std::uint64_t length_bytes = 0;
};

/// `count` runs of `length_bytes` each; run i begins at file_offset + i * file_stride of the file and at
/// memory_offset + i * memory_stride of the memory box.
struct RunBatch {
  std::uint64_t file_offset = 0;
  std::uint64_t memory_offset = 0;
  std::uint64_t length_bytes = 0;
  std::uint64_t count = 0;
  std::uint64_t file_stride = 0;
  std::uint64_t memory_stride = 0;
};

/// Walks bytes [first, first + bytes) of `runs` in batches, for copy loops. `runs` must outlive the cursor.
class RunCursor {
 public:
  RunCursor(const Runs& runs, std::uint64_t first, std::uint64_t bytes);

  [[nodiscard]] bool done() const { return left_ == 0; }
  /// The next runs: whole runs of the innermost level, or one partial run. Requires: not done.
  RunBatch next();

 private:
  void advance(std::uint64_t runs);

  const Runs& runs_;
  std::array<std::uint64_t, Runs::kMaxDepth> index_{};
  std::uint64_t file_offset_ = 0;    // offset of the current run's first byte
  std::uint64_t memory_offset_ = 0;  // offset of that byte in the memory box
  std::uint64_t inside_ = 0;         // bytes of the current run that were already walked
  std::uint64_t left_ = 0;
};

/// Calls visit(Run) for each run, clipped to [clip_begin, clip_end) of the file, ascending.
template <class Visit>
void for_each_run(const Runs& runs, std::uint64_t clip_begin, std::uint64_t clip_end, const Visit& visit) {
  const std::uint64_t first = runs.bytes_before(clip_begin);
  const std::uint64_t end = std::max(first, runs.bytes_before(clip_end));
  for (RunCursor cursor(runs, first, end - first); !cursor.done();) {
    const RunBatch batch = cursor.next();
    for (std::uint64_t i = 0; i < batch.count; ++i) {
      visit(Run{batch.file_offset + i * batch.file_stride, batch.memory_offset + i * batch.memory_stride,
                batch.length_bytes});
    }
  }
}

/// Calls visit(Run) for all runs.
template <class Visit>
void for_each_run(const Runs& runs, const Visit& visit) {
  for_each_run(runs, 0, runs.file_end(), visit);
}

}  // namespace cairn::plan
