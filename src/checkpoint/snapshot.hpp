// A copy of what this rank hands over of its state: all that an asynchronous save needs of the program's memory.
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
#include "os/pages.hpp"
#include "plan/pieces.hpp"
#include "plan/runs.hpp"

namespace cairn::checkpoint {

/// Bytes of a snapshot, by where they come from.
struct SnapshotBytes {
  std::uint64_t host = 0;
  std::uint64_t device = 0;  ///< these are copied into pinned memory

  [[nodiscard]] std::uint64_t all() const { return host + device; }
};

/// What is copied: a span of each memory box. `places`: of those that are written as they lie in the snapshot, where that
/// is; they lie there in the order of the files, and in their pages as in the files'.
struct SnapshotParts {
  std::span<const plan::MemoryBox> memory;
  std::span<const plan::MemorySpan> spans;
  std::span<const std::optional<io::BoxInFile>> places = {};
};

/// What a snapshot takes, with what is lost between its parts.
SnapshotBytes snapshot_bytes(const SnapshotParts& parts);

/// Copies what memory boxes hold, and keeps the memory for the next time. Rank-local.
///
/// A few bytes of every span are looked at before the copying, and again in the copy when what() asks: where they
/// differ, somebody wrote into the state while it was copied, or into the copy.
class Snapshot {
 public:
  /// Makes room, all of whose pages are there already. What is there stays when it is enough. Throws Error(kIo) when memory is
  /// short; nothing is kept then.
  void reserve(const SnapshotBytes& bytes);

  /// Finds places for the parts; the memory that they name must stay until copy(). Requires: room for them.
  void place(const SnapshotParts& parts);
  /// Throws Error(kIo) when a device refuses a copy.
  void copy();
  /// After it, whether it failed or not.
  void end_copy();

  // By another thread, after place():

  /// Waits until these bytes of the snapshot are copied, or end_copy(); whether that was so within `most`.
  bool wait_for(std::span<const std::byte> bytes, std::chrono::milliseconds most) const;
  /// Waits for end_copy().
  void wait_for_end() const;

  /// The boxes of place() with their bytes in the snapshot, all in host memory; outside of the spans there is nothing.
  [[nodiscard]] std::span<const plan::MemoryBox> boxes() const { return boxes_; }
  [[nodiscard]] std::uint64_t copied_bytes() const { return copied_bytes_; }
  /// Number of the first box whose bytes are not those that were copied. Boxes with gaps and in device memory are not looked
  /// at.
  [[nodiscard]] std::optional<std::size_t> first_changed() const;

  /// Of memory that is kept.
  [[nodiscard]] std::uint64_t pool_bytes() const { return host_.span().size() + pinned_.size(); }
  /// Gives it back.
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
  std::vector<std::uint32_t> digests_;  ///< by box; 0: not looked at
  std::uint64_t copied_bytes_ = 0;

  void note_copied(const std::byte* end);
  struct Progress {
    std::mutex mutex;
    os::Condition changed;
    const std::byte* host_end = nullptr;  ///< of what is copied of host_, which is filled from its beginning
    bool is_over = false;
  };
  std::unique_ptr<Progress> progress_ = std::make_unique<Progress>();
};

}  // namespace cairn::checkpoint
