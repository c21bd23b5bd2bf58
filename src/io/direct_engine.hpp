// Engines `direct` and `posix`: each rank's own extents by POSIX calls, without MPI-IO. Errors keep their errno.
//
// `direct` is O_DIRECT through io_uring: extents go from the window to storage past the page cache, several requests in
// flight, while the caller fills the next window. What O_DIRECT cannot address - the head and the tail of an operation
// off the alignment, memory off the alignment - goes through the page cache by a second descriptor; it never shares a
// page with the direct part, so nothing is read back and written again. Where O_DIRECT or io_uring is refused, all of
// it goes through the page cache, which is said once with the reason. With a bounce buffer (EngineOptions) reads go
// through buffers in huge pages.
//
// A rank with more files than its process may have open has them open by turns: the one that was used longest ago is
// closed, after what is under way in it, and synced before if it was written, so that no error is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "io/engine.hpp"
#include "os/direct.hpp"
#include "os/file.hpp"
#include "os/io_queue.hpp"
#include "os/striping.hpp"

namespace cairn::io {

// Reads by O_DIRECT that go through buffers in huge pages, because the memory of the caller lies in small ones.
//
// A read is queued as soon as a buffer is free, whatever the caller does meanwhile, and copied when its round is waited
// for: so reads run ahead of the windows, as far as there are buffers. They end in the order in which they came. The
// buffer that became free last is used first, and there are few to begin with: memory is touched for the first time,
// which may cost more than reading into it, while the disk is busy already.

class BounceReads {
 public:
  /// `memory` is cut into buffers of `buffer_bytes`, one at least; it and `queue`, which nobody else uses, must outlive
  /// the object. Without a queue there are only reads through the page cache.
  BounceReads(os::IoQueue* queue, std::span<std::byte> memory, std::uint64_t buffer_bytes);

  /// At most `buffer_bytes` of data, of an ascending round. Failures are kept for finish().
  void read(const os::IoQueue::Target& target, std::span<std::byte> data, std::uint64_t offset, std::uint64_t round);
  /// A read through the page cache, of any size, in its turn: before that nobody may touch the memory.
  void read_plainly(os::File& file, std::span<std::byte> data, std::uint64_t offset, std::uint64_t round);

  /// Waits for all reads up to this round, and throws what the first that failed in it met.
  void finish(std::uint64_t round);

 private:
  struct Read {
    os::IoQueue::Target target;  ///< direct is null: through the page cache
    std::span<std::byte> data;   ///< of the caller
    std::uint64_t offset = 0;
    std::uint64_t round = 0;
    std::byte* buffer = nullptr;  ///< null: it has none yet, or needs none
  };
  void start();
  void complete_oldest();

  os::IoQueue* queue_;
  std::vector<std::byte*> free_;                          ///< the next one at the end
  std::uint64_t in_use_ = 0;                              ///< buffers
  std::deque<Read> reads_;                                ///< oldest first
  std::uint64_t first_ = 0;                               ///< number of the oldest, which is its group in the queue
  std::uint64_t started_ = 0;                             ///< reads before this number are with the queue
  std::map<std::uint64_t, std::exception_ptr> failures_;  ///< by round
};

class DirectEngine final : public Engine {
 public:
  /// kPageCache is the engine "posix": nothing is direct, and only writes to file systems in memory are queued.
  enum class Way { kDirect, kPageCache };

  DirectEngine(comm::Communicator& communicator, const EngineOptions& options, Way way);

  [[nodiscard]] std::string_view name() const override { return way_ == Way::kDirect ? "direct" : "posix"; }
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
  /// Rank-local: opens the files of the place where they are not.
  void use(std::size_t place, std::uint64_t round);
  void close_place(std::size_t place, std::uint64_t round);
  /// Place of the file among this rank's files. Throws Error(kInternal) for a file of others.
  [[nodiscard]] std::size_t place_of(std::uint32_t file) const;
  void finish_requests(std::uint64_t round);
  void wait(Round& round);
  template <class Op>
  void begin_round(std::span<const Op> ops);
  template <class Op>
  void move(const Op& op, std::uint64_t round);

  comm::Communicator& communicator_;
  Way way_;
  bool reserve_space_;
  bool writes_to_memory_ = false;  ///< whether the files that are written lie in memory
  bool is_local_ = false;          ///< ... on a disk of this machine
  os::Striping striping_;
  std::uint64_t request_bytes_;
  std::span<std::byte> bounce_buffer_;
  std::vector<std::uint32_t> more_files_;
  std::vector<EngineFile> files_;
  std::vector<std::uint32_t> kept_;  ///< files that this rank creates and checks
  std::vector<std::uint32_t> mine_;  ///< files that this rank reads or writes, ascending; a place is one of these
  os::OpenMode mode_ = os::OpenMode::kRead;
  std::vector<os::File> descriptors_;    ///< by place; not open: by turns
  std::vector<os::DirectFile> direct_;   ///< by place
  std::size_t most_open_ = 0;            ///< places
  std::list<std::size_t> open_;          ///< places, the one used longest ago first; empty where all are open
  std::vector<std::uint64_t> last_use_;  ///< round, by place
  std::unique_ptr<os::IoQueue> queue_;  ///< null: everything through the page cache. After the files: it waits for them
  std::unique_ptr<BounceReads> bounced_;  ///< null: reads go into the memory of the caller
  /// Begun and not finished, oldest first. The room is made beforehand: to begin a round must not fail.
  std::vector<Round> rounds_;
  std::uint64_t rounds_begun_ = 0;
};

}  // namespace cairn::io
