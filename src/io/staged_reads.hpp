// Reads by O_DIRECT that go through buffers in huge pages, because the memory of the caller lies in small ones.
//
// A read is queued as soon as a buffer is free, whatever the caller does meanwhile, and copied when its round is waited for:
// so reads run ahead of the windows, as far as there are buffers. They end in the order in which they came. The buffer that
// became free last is used first, and there are few to begin with: memory is touched for the first time, which may cost
// more than reading into it, while the disk is busy already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <span>
#include <vector>

#include "os/io_queue.hpp"

namespace cairn::io {

class StagedReads {
 public:
  /// `memory` is cut into buffers of `buffer_bytes`, one at least; it and `queue`, which nobody else uses, must outlive the
  /// object. Without a queue there are only reads through the page cache.
  StagedReads(os::IoQueue* queue, std::span<std::byte> memory, std::uint64_t buffer_bytes);

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

}  // namespace cairn::io
