// Engines `direct` and `posix`: each rank moves its extents by system calls, without MPI-IO. Errors keep their errno.
//
// `direct` uses O_DIRECT through io_uring: extents go from the window to storage past the page cache, with several
// requests in flight, while the caller fills the next window. Unaligned heads and tails of an operation, and unaligned
// memory, go through the page cache by a second descriptor. They never share a page with the direct part, so no page
// is read back and written again. If O_DIRECT or io_uring is refused, the page cache is used instead, and one warning
// gives the reason. With a bounce buffer (EngineOptions) reads go through buffers in huge pages.
//
// A rank with more files than its process may open keeps only some of them open. It closes the least recently used file
// when that file's requests have finished; it first syncs a written file, so that no error is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "io/engine.hpp"
#include "os/direct.hpp"
#include "os/file.hpp"
#include "os/io_queue.hpp"
#include "os/striping.hpp"

namespace cairn::io {

/// Reads by O_DIRECT through buffers in huge pages, because the memory of the caller lies in small pages.
///
/// A read is queued as soon as a buffer is free. When the caller waits for the read's round, the bytes are copied to
/// the caller's memory, and the buffer is free again. So reads run ahead of the windows as far as there are buffers, in
/// the order of the calls. The buffer that became free last is used first, and only a few are used at the beginning, so
/// that the first touch of memory, which may cost more than reading into it, happens while the disk is busy.
class BounceReads {
 public:
  /// `memory` is cut into buffers of `buffer_bytes` and must hold at least one. `queue` must have no other user. Both
  /// must outlive the object. Without a queue all reads go through the page cache.
  BounceReads(os::IoQueue* queue, std::span<std::byte> memory, std::uint64_t buffer_bytes);

  /// Reads at most `buffer_bytes`. `round` must not decrease from call to call. Failures are kept for finish().
  void read(const os::IoQueue::Target& target, std::span<std::byte> data, std::uint64_t offset, std::uint64_t round);
  /// Reads any number of bytes through the page cache, after earlier reads; do not touch `data` before finish(round).
  void read_plainly(os::File& file, std::span<std::byte> data, std::uint64_t offset, std::uint64_t round);

  /// Waits for all reads up to this round, and throws the first failure in it.
  void finish(std::uint64_t round);

 private:
  struct Read {
    os::IoQueue::Target target;  ///< target.direct is null for reads through the page cache
    std::span<std::byte> data;   ///< the caller's memory
    std::uint64_t offset = 0;
    std::uint64_t round = 0;
    std::byte* buffer = nullptr;  ///< null: not assigned yet, or not needed
  };
  void start();
  void complete_oldest();

  os::IoQueue* queue_;
  std::vector<std::byte*> free_;                          ///< the last one is used next
  std::uint64_t in_use_ = 0;                              ///< number of buffers in use
  std::deque<Read> reads_;                                ///< oldest first
  std::uint64_t first_ = 0;                               ///< number of the oldest read; also its group in the queue
  std::uint64_t started_ = 0;                             ///< reads before this number are queued, or need no queue
  std::map<std::uint64_t, std::exception_ptr> failures_;  ///< by round
};

class DirectEngine final : public Engine {
 public:
  /// Without direct I/O this is engine "posix", which queues only writes to file systems in memory.
  DirectEngine(comm::Communicator& communicator, const EngineOptions& options, EngineTraits traits);

  void open_for_write(std::vector<EngineFile> files, plan::ExtentMaps extents) override;
  void open_for_read(std::vector<EngineFile> files, plan::ExtentMaps extents) override;
  void write_round(std::span<const WriteOp> ops) override;
  void read_round(std::span<const ReadOp> ops) override;
  void begin_write(std::span<const WriteOp> ops) override;
  void begin_read(std::span<const ReadOp> ops) override;
  void wait_rounds(std::size_t unfinished) override;
  void finish_rounds(std::size_t unfinished) override;
  void sync() override;
  void close() override;

 private:
  struct Round {
    std::uint64_t number = 0;
    bool is_write = false;
    bool is_done = false;
    std::exception_ptr failure;
  };
  void begin(std::vector<EngineFile> files, plan::ExtentMaps extents);
  void look_at_storage();
  void open_direct();
  void open_in_memory();
  void open_first();
  void open_place(std::size_t place);
  /// Rank-local: opens the file at `place` if needed (perhaps after closing another), and notes its use in `round`.
  void use(std::size_t place, std::uint64_t round);
  void close_place(std::size_t place, std::uint64_t round);
  /// Place of the file among this rank's files. Throws Error(kInternal) for a file that is not among them.
  [[nodiscard]] std::size_t place_of(std::uint32_t file) const;
  void finish_requests(std::uint64_t round);
  void wait(Round& round);
  template <class Op>
  void begin_round(std::span<const Op> ops);
  template <class Op>
  void move(const Op& op, std::uint64_t round);

  comm::Communicator& communicator_;
  EngineTraits traits_;
  bool reserve_space_;
  bool writes_to_memory_ = false;  ///< the written files lie in memory
  bool is_local_ = false;          ///< the written files lie on a disk of this machine
  os::Striping striping_;
  std::uint64_t request_bytes_;
  std::span<std::byte> bounce_buffer_;
  std::vector<std::uint32_t> more_files_;
  std::vector<EngineFile> files_;
  std::vector<std::uint32_t> kept_;  ///< files that this rank creates and checks
  std::vector<std::uint32_t> mine_;  ///< files that this rank reads or writes, ascending; a place is an index into it
  os::OpenMode mode_ = os::OpenMode::kRead;
  std::vector<os::File> descriptors_;     ///< by place; some may be closed at the moment
  std::vector<os::DirectFile> direct_;    ///< by place
  std::size_t most_open_ = 0;             ///< places that may be open
  std::list<std::size_t> open_;           ///< open places, the least recently used first; empty if all may be open
  std::vector<std::uint64_t> last_use_;   ///< round, by place
  std::unique_ptr<os::IoQueue> queue_;    ///< null: everything goes through the page cache. Declared after the files
                                          ///< that it uses
  std::unique_ptr<BounceReads> bounced_;  ///< null: reads go into the memory of the caller
  /// Rounds that were begun but not finished, oldest first. The list's memory is reserved beforehand, because beginning
  /// a round must not fail.
  std::vector<Round> rounds_;
  std::uint64_t rounds_begun_ = 0;
};

}  // namespace cairn::io
