// The byte runs of one region, made ready for copying: a few levels of counts and strides instead of boxes.
//
// The bytes of the region, in row-major order, are numbered 0 .. bytes(). Every position in that order is reached by
// division, so a window, a message or a resumed copy begins anywhere at the same cost, and no state is kept between
// them. Runs come in batches of equal length at constant strides, which is what a copy loop wants (copy_runs.hpp).
// The runs are the same ones that plan::for_each_run visits; tests/unit/io compares the two.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "plan/runs.hpp"
#include "plan/transfer.hpp"

namespace cairn::io {

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

class RunGeometry {
 public:
  RunGeometry() = default;
  /// Throws Error(kInternal) when the region lies outside one of its boxes, or cuts a byte of a sub-byte dtype.
  explicit RunGeometry(const plan::RunSpace& space);

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Length of an uncut run.
  [[nodiscard]] std::uint64_t run_bytes() const { return run_bytes_; }
  /// Smallest file range that contains the region.
  [[nodiscard]] std::uint64_t file_begin() const { return file_begin_; }
  [[nodiscard]] std::uint64_t file_end() const { return file_end_; }
  /// Bytes of the region that lie before this offset of the file.
  [[nodiscard]] std::uint64_t bytes_before(std::uint64_t file_offset) const;

 private:
  friend class RunCursor;
  struct Level {
    std::uint64_t count = 0;
    std::uint64_t file_stride = 0;
    std::uint64_t memory_stride = 0;
    std::uint64_t block_bytes = 0;  ///< region bytes of one index of this level
    std::uint64_t span_bytes = 0;   ///< file bytes from the first to past the last of them
  };
  std::array<Level, plan::kMaxRecordRank> levels_{};  ///< outermost first
  std::size_t depth_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t run_bytes_ = 0;
  std::uint64_t file_begin_ = 0;
  std::uint64_t file_end_ = 0;
  std::uint64_t memory_begin_ = 0;
};

/// Walks the bytes [first, first + bytes) of a region in batches. The geometry must outlive it.
class RunCursor {
 public:
  RunCursor(const RunGeometry& geometry, std::uint64_t first, std::uint64_t bytes);

  [[nodiscard]] bool done() const { return left_ == 0; }
  /// The next runs: whole runs of the innermost level, or one cut run. Requires: not done.
  RunBatch next();

 private:
  void advance(std::uint64_t runs);

  const RunGeometry& geometry_;
  std::array<std::uint64_t, plan::kMaxRecordRank> index_{};
  std::uint64_t file_offset_ = 0;    // of the current run's first byte
  std::uint64_t memory_offset_ = 0;  // likewise
  std::uint64_t inside_ = 0;         // bytes of the current run already walked
  std::uint64_t left_ = 0;
};

}  // namespace cairn::io
