// A copy of the bytes that this rank provides: once it is made, an asynchronous save does not need the program's
// memory.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "gpu/stream.hpp"
#include "io/bypass_runs.hpp"
#include "os/condition.hpp"
#include "os/huge_pages.hpp"
#include "plan/pieces.hpp"
#include "plan/runs.hpp"

namespace cairn::checkpoint {

/// Bytes of a snapshot by their source.
struct SnapshotBytes {
  std::uint64_t host = 0;
  std::uint64_t device = 0;  ///< copied into pinned memory

  [[nodiscard]] std::uint64_t all() const { return host + device; }
};

/// The parts to copy: a span of each memory box. `places`: the place in its file of each box that is written directly
/// from the snapshot. The snapshot has these boxes in the order of the files, at the same offsets within a page.
struct SnapshotParts {
  std::span<const plan::MemoryBox> memory;
  std::span<const plan::MemorySpan> spans;
  std::span<const std::optional<io::BoxInFile>> places = {};
};

/// The size of a snapshot, gaps between its parts included.
SnapshotBytes snapshot_bytes(const SnapshotParts& parts);

/// Copies the bytes of memory boxes, and keeps its memory for the next time. Rank-local.
///
/// Samples of the spans are checksummed before the copy; first_changed() compares the checksums with the copy's. A
/// difference means that the state changed during the copy, or that the copy changed later.
class Snapshot {
 public:
  /// Allocates memory whose pages all exist, unless the old memory is large enough. Memory that is too
  /// small is freed first. Throws Error(kIo) if memory is short.
  void reserve(const SnapshotBytes& bytes);

  /// Lays out the parts; the memory to which they point must stay valid until copy() returns. Requires: reserve() for
  /// their size.
  void place(const SnapshotParts& parts);
  /// Throws Error(kIo) if a device refuses a copy.
  void copy();
  /// Call after copy(), even if that failed.
  void end_copy();

  // Called by another thread, after place():

  /// Waits for the copy of these bytes of the snapshot, or for end_copy(); false after `most`.
  bool wait_for(std::span<const std::byte> bytes, std::chrono::milliseconds most) const;
  /// Waits for end_copy().
  void wait_for_end() const;

  /// The boxes of place() with their bytes in the snapshot, all in host memory. Only the spans may be read.
  [[nodiscard]] std::span<const plan::MemoryBox> boxes() const { return boxes_; }
  [[nodiscard]] std::uint64_t copied_bytes() const { return copied_bytes_; }
  /// Number of the first box whose samples differ. Boxes with gaps, and boxes in device memory, are not compared.
  [[nodiscard]] std::optional<std::size_t> first_changed() const;

  /// Bytes of the kept memory.
  [[nodiscard]] std::uint64_t pool_bytes() const { return host_.span().size() + pinned_.size(); }
  /// Frees the memory.
  void release();

 private:
  os::PopulatedMemory host_;
  gpu::PinnedBuffer pinned_;
  std::optional<gpu::Stream> stream_;
  struct Piece {
    std::span<const std::byte> from;
    std::byte* to = nullptr;
    std::size_t box = 0;
    bool is_on_device = false;
  };
  std::vector<Piece> pieces_;
  std::vector<plan::MemoryBox> boxes_;
  std::vector<std::uint32_t> digests_;  ///< by box; 0: not compared
  std::uint64_t copied_bytes_ = 0;

  void note_copied(const std::byte* end);
  struct Progress {
    std::mutex mutex;
    os::Condition changed;
    const std::byte* host_end = nullptr;  ///< end of the copied part of host_, which is filled from its beginning
    bool is_over = false;
  };
  std::unique_ptr<Progress> progress_ = std::make_unique<Progress>();
};

}  // namespace cairn::checkpoint
