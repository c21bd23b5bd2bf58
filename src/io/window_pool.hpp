// The buffers of the windows: a few per rank, in turn, so that one is filled (or emptied) while the others are on their
// way to (or from) storage. They lie in memory that the ranks of a node share, so that a rank copies its bytes straight
// into another's window: one copy, no message (exchange.hpp). With a bounce buffer, which is the rank's own and may lie
// in huge pages where shared memory may not, one buffer is enough: what is on its way is there (direct_engine.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "comm/communicator.hpp"
#include "comm/shared_memory.hpp"
#include "plan/extents.hpp"

namespace cairn::io {

/// A window of this rank: its parts lie in `buffer` at window->offsets.
struct WindowBuffer {
  const plan::Window* window = nullptr;  ///< null: no window in this round
  std::span<std::byte> buffer;
};

class WindowPool {
 public:
  /// Rounds that may be on their way besides the one that the caller works on. With few, storage idles: a rank is late,
  /// or the disk is done with all of them at once. bench/README.md has the figures.
  static constexpr std::size_t kAhead = 5;

  /// Of a rank, where there is no bounce buffer.
  static constexpr std::size_t kBuffers = kAhead + 1;

  /// When the buffers get their pages: each with make_window(), while storage works on those before it, or all at once.
  enum class Pages { kByWindow, kAtOnce };

  /// Collective. Buffers of the largest of `bytes` over the ranks, zeroed. Throws Error(kIo) on all ranks when memory
  /// is short. A node whose ranks cannot share memory says so once, as a warning. `bounce_bytes`: none or some on all
  /// ranks alike.
  WindowPool(comm::Communicator& communicator, std::uint64_t bytes,
             comm::SharedMemory::Reach reach = comm::SharedMemory::Reach::kNode, std::uint64_t bounce_bytes = 0,
             Pages pages = Pages::kAtOnce);

  /// Collective, with the rounds in order, before anybody uses the buffers of this one: gives them their pages, the
  /// first time. Throws Error(kIo) on all ranks when memory is short; it may be tried again. Fault hook: step
  /// "windows.make".
  void make_window(comm::Communicator& communicator, std::uint64_t round);

  /// Room of each buffer; the same on all ranks.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// This rank's buffers, as far as they have their pages, end to end: memory to work in while no window is used.
  [[nodiscard]] std::span<std::byte> idle_memory() const {
    return bytes_ == 0 ? std::span<std::byte>() : std::span(buffer(rank_, 0), made_ * stride_bytes_);
  }
  /// For EngineOptions::bounce_buffer. Empty: none, and kBuffers windows.
  [[nodiscard]] std::span<std::byte> bounce_buffer() { return bounce_buffer_.span(); }

  /// Window number `round` of `windows` at the front of its buffer; no window when there are fewer, or it has no parts.
  [[nodiscard]] WindowBuffer of(std::span<const plan::Window> windows, std::uint64_t round) const;

  /// Whether this rank can address the windows of that one. Symmetric; true for the rank itself.
  [[nodiscard]] bool reaches(int rank) const { return memory_.reaches(rank); }
  /// Buffers of all ranks in a round, into the memory given: one for each rank, null for those that are not reached.
  void put_buffers(std::uint64_t round, std::vector<std::byte*>& all) const;
  /// Collective over the ranks that reach each other.
  void barrier() { memory_.barrier(); }

  /// Bytes that ranks have put into this rank's window of the round since the last reset, as they said with
  /// add_arrived.
  void reset_arrived(std::uint64_t round) { counter(rank_, round).store(0, std::memory_order_relaxed); }
  void add_arrived(int rank, std::uint64_t round, std::uint64_t bytes) {
    counter(rank, round).fetch_add(bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t arrived(std::uint64_t round) const {
    return counter(rank_, round).load(std::memory_order_relaxed);
  }

 private:
  [[nodiscard]] std::byte* buffer(int rank, std::uint64_t round) const;
  [[nodiscard]] std::atomic<std::uint64_t>& counter(int rank, std::uint64_t round) const;

  int rank_;
  std::uint64_t bytes_;
  std::uint64_t stride_bytes_;
  std::uint64_t buffers_;
  std::uint64_t made_;         ///< of the buffers; the same on all ranks
  comm::SharedMemory memory_;  ///< the buffers; counters in its notes
  base::AlignedBuffer bounce_buffer_;
};

/// Where saves and loads of one communicator keep the pool for each other: making one costs page faults.
struct WindowStore {
  std::shared_ptr<WindowPool> pool;

  /// Collective. The kept pool when its buffers have room for the largest of `bytes` over the ranks, else a new one,
  /// which is kept instead; the one before is given back first, unless somebody holds it for a call under way. One that was made without a bounce buffer serves
  /// who asks for some, too: a save that keeps its pool and a load beside it stay within one budget.
  std::shared_ptr<WindowPool> get(comm::Communicator& communicator, std::uint64_t bytes,
                                  std::uint64_t bounce_bytes = 0);
};

}  // namespace cairn::io
