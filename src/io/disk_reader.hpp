// Reads ranges of files past the page cache, in order, while the caller processes the data that have arrived. The data
// come from storage, not from this machine's cache.
//
// The reader uses O_DIRECT, with several requests in flight through io_uring, or one at a time by a thread if io_uring
// is refused. The end of a file is also read by O_DIRECT. If O_DIRECT is refused, or the file system may use the page
// cache nevertheless, the cached pages are dropped first, and those that remain are counted: see cached_bytes(). Caches
// of storage servers, hosts and disks are out of reach. Rank-local; loads read through engines, which are collective.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "io/bypass_runs.hpp"
#include "io/engine.hpp"
#include "io/rounds.hpp"
#include "os/direct.hpp"
#include "os/io_queue.hpp"
#include "plan/extents.hpp"

namespace cairn::io {

class DiskReader {
 public:
  /// The most memory that the reader uses (enough to keep a disk busy), and the least that it needs.
  static constexpr std::uint64_t kMostBytes = 32ULL << 20;
  static constexpr std::uint64_t kLeastBytes = 128ULL << 10;

  /// `memory`: at least kLeastBytes, on a page boundary; it must outlive the object.
  explicit DiskReader(std::span<std::byte> memory);

  /// Calls `seen` with the bytes of each range in order, in pieces of at most kRequestBytes. Throws Error(kIo) if a
  /// read fails or passes the end of a file, and passes on exceptions from `seen`. The object can be used again.
  void read(std::span<const EngineFile> files, std::span<const plan::Extent> ranges, const PieceSeen& seen);

  /// Number of the bytes read so far that may have come from a cache.
  [[nodiscard]] std::uint64_t cached_bytes() const { return cached_bytes_; }
  /// The reason why the first of the cached_bytes() may have come from a cache; empty if there are none.
  [[nodiscard]] const std::string& why_cached() const { return why_cached_; }

 private:
  struct OpenFile {
    std::uint32_t number = 0;
    os::DirectFile direct;
    os::File plain;
  };
  struct Request {
    std::shared_ptr<OpenFile> file;
    std::span<std::byte> buffer;                     ///< destination of the read
    std::uint64_t offset = 0;                        ///< offset of the buffer's first byte in the file
    std::uint64_t skip_bytes = 0;                    ///< bytes read only for alignment
    std::uint64_t bytes = 0;                         ///< wanted bytes after the skipped ones
    std::shared_ptr<std::string> refusal = nullptr;  ///< reason why O_DIRECT was refused; set by the worker
  };
  std::shared_ptr<OpenFile> open(std::uint32_t number, const EngineFile& file);
  void look_at_cache(const OpenFile& file, const plan::Extent& range);
  void note_refusal(const Request& request);
  void start(Request request);
  void finish_oldest(const PieceSeen& seen);
  void read_ranges(std::span<const EngineFile> files, std::span<const plan::Extent> ranges, const PieceSeen& seen);
  void give_up();

  std::span<std::byte> memory_;
  std::uint64_t request_bytes_;
  std::uint64_t buffers_;
  std::uint64_t cached_bytes_ = 0;
  std::string why_cached_;
  std::deque<Request> requests_;  ///< started, oldest first
  std::uint64_t first_ = 0;       ///< number of the oldest request, which is its group in the queue
  std::string refusal_;           ///< reason why O_DIRECT was refused for a transfer
  // Either `queue_` or `worker_` is used. Both are declared last, because their requests use the other members.
  std::unique_ptr<os::IoQueue> queue_;
  std::unique_ptr<RoundWorker> worker_;
};

}  // namespace cairn::io
