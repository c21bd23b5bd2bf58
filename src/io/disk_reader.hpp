// Reads ranges of files past the page cache, in order, while the caller works on what has arrived: what is seen is what
// storage holds, not what this machine remembers.
//
// O_DIRECT, several requests in flight through io_uring, or one at a time by a thread where io_uring is refused. The
// end of a file is read by O_DIRECT too. Where O_DIRECT is refused, or does not keep the file system from using the
// page cache, the cached pages are dropped first, and those that are left are counted: see cached_bytes(). What a
// storage server, a host or a disk remembers is out of reach. Rank-local; engines, which are collective, read for
// loads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
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
  /// Of memory. As much as keeps a disk busy, and as little as works.
  static constexpr std::uint64_t kMostBytes = 32ULL << 20;
  static constexpr std::uint64_t kLeastBytes = 128ULL << 10;

  /// `memory`: kLeastBytes at least, on a page boundary; it must outlive the object.
  explicit DiskReader(std::span<std::byte> memory);

  /// Calls `seen` with the bytes of each range in order, in pieces of at most kRequestBytes. Throws Error(kIo) when
  /// reading fails, also behind the end of a file, and what `seen` throws; the object can be used again.
  void read(std::span<const EngineFile> files, std::span<const plan::Extent> ranges, const PieceSeen& seen);

  /// Of the bytes read so far, those of which it is not known that they came from storage.
  [[nodiscard]] std::uint64_t cached_bytes() const { return cached_bytes_; }
  /// Why there are any, of the first file; empty when there are none.
  [[nodiscard]] const std::string& why_cached() const { return why_cached_; }

 private:
  struct OpenFile {
    std::uint32_t number = 0;
    os::DirectFile direct;
    os::File plain;
  };
  struct Request {
    std::shared_ptr<OpenFile> file;
    std::span<std::byte> buffer;                     ///< what is read
    std::uint64_t offset = 0;                        ///< of it in the file
    std::uint64_t skip_bytes = 0;                    ///< read because of the alignment
    std::uint64_t bytes = 0;                         ///< wanted, after those
    std::shared_ptr<std::string> refusal = nullptr;  ///< of O_DIRECT; filled by the worker
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
  std::uint64_t first_ = 0;       ///< number of the oldest, its group in the queue
  std::string refusal_;           ///< of O_DIRECT, at a transfer
  // One of them; last, because their requests use the others.
  std::unique_ptr<os::IoQueue> queue_;
  std::unique_ptr<RoundWorker> worker_;
};

}  // namespace cairn::io
