// Region of a tensor to byte runs: where the elements of a region lie in a file and in memory.
//
// A stored box (bytes in a file) and a memory box (bytes at a pointer) both hold their elements row-major. The elements
// of a region inside both, taken in row-major order, ascend in the file and in memory alike; they form runs that are
// contiguous in both. A clip restricts them to a byte range of the file (a window of an extent) and is found by
// arithmetic, not by walking from the start.
#pragma once

#include <cstdint>
#include <functional>

#include "cairn/box.hpp"
#include "cairn/dtype.hpp"
#include "format/stored_checkpoint.hpp"

namespace cairn::plan {

/// One run: `length_bytes` at `file_offset` of the file and at `memory_offset` from the start of the memory box.
struct Run {
  std::uint64_t file_offset = 0;
  std::uint64_t memory_offset = 0;
  std::uint64_t length_bytes = 0;
};

/// Geometry of one copy. `region` must lie inside `stored.box` and `memory_box` (all in global coordinates).
struct RunSpace {
  DType dtype = DType::kF32;
  Box stored_box;
  std::uint64_t stored_offset = 0;  ///< byte offset in the file of the stored box's first element
  Box memory_box;
  Box region;
};

/// Smallest file byte range that contains the region: [begin, end). Empty regions give {0, 0}.
struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};
ByteRange file_span(const RunSpace& space);

/// True when every run of the region starts and ends on a byte boundary in file and memory (always so for dtypes of 8
/// bits and more).
bool is_byte_aligned(const RunSpace& space);

/// Calls `visit` for each run inside [clip_begin, clip_end) of the file, ascending. Runs that are adjacent in both file
/// and memory are merged.
void for_each_run(const RunSpace& space, std::uint64_t clip_begin, std::uint64_t clip_end,
                  const std::function<void(const Run&)>& visit);

/// Bytes that for_each_run would visit.
std::uint64_t run_bytes(const RunSpace& space, std::uint64_t clip_begin, std::uint64_t clip_end);

}  // namespace cairn::plan
