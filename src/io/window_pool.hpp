// The buffers of the windows. Each rank has a few buffers and uses them in turn: one is filled (or emptied) while the
// others are being written (or read). The buffers lie in memory that the ranks of a node share: a rank copies its bytes
// straight into another rank's window, with one copy and no message (exchange.hpp). With a bounce buffer, which belongs
// to one rank and can lie in huge pages even if shared memory cannot, one window buffer is enough: the bytes in flight
// are in the bounce buffer (direct_engine.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
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
  /// Rounds that may be in flight while the caller works on another round. With fewer, storage idles if a rank is late,
  /// or if the disk finishes all rounds at once. bench/results/notes-bench.md has the figures.
  static constexpr std::size_t kAhead = 5;

  /// Buffers of a rank without a bounce buffer.
  static constexpr std::size_t kBuffers = kAhead + 1;

  /// When buffers get their pages: each at make_window(), while storage works on earlier windows, or all at once.
  enum class Pages { kByWindow, kAtOnce };

  /// Collective. Each buffer has the largest `bytes` of any rank, and is zeroed. `bounce_bytes` must be 0 on
  /// all ranks or on none. Throws Error(kIo) on all ranks when memory is short. Logs one warning when the
  /// ranks of a node cannot share memory.
  WindowPool(comm::Communicator& communicator, std::uint64_t bytes,
             comm::SharedMemory::Reach reach = comm::SharedMemory::Reach::kNode, std::uint64_t bounce_bytes = 0,
             Pages pages = Pages::kAtOnce);

  /// Collective, for each round in order, before any rank uses the buffers of that round: gives the buffers
  /// their pages at their first use. Throws Error(kIo) on all ranks when memory is short; may be called
  /// again for the same round. Fault hook: step "windows.make".
  void make_window(comm::Communicator& communicator, std::uint64_t round);

  /// Size of each buffer; the same on all ranks.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// This rank's buffers that have their pages, end to end: scratch memory while no window is in use.
  [[nodiscard]] std::span<std::byte> idle_memory() const {
    return bytes_ == 0 ? std::span<std::byte>() : std::span(buffer(rank_, 0), made_ * stride_bytes_);
  }
  /// The memory for EngineOptions::bounce_buffer; empty if the pool has kBuffers windows instead.
  [[nodiscard]] std::span<std::byte> bounce_buffer() { return bounce_buffer_.span(); }

  /// Window number `round` of `windows`, at the front of its buffer; an empty WindowBuffer if the list is shorter or
  /// the window has no parts.
  [[nodiscard]] WindowBuffer of(std::span<const plan::Window> windows, std::uint64_t round) const;

  /// Whether this rank can address the windows of `rank`. Symmetric; true for the rank itself.
  [[nodiscard]] bool reaches(int rank) const { return memory_.reaches(rank); }
  /// Stores the buffer of each rank in a round into `all`, by rank; null for a rank that is not reached.
  void put_buffers(std::uint64_t round, std::vector<std::byte*>& all) const;
  /// Collective over the ranks that can address each other's windows.
  void barrier() { memory_.barrier(); }

  /// Counter of the bytes that the ranks of the node have copied into this rank's window of the round since the last
  /// reset; the ranks report their bytes with add_arrived().
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
  std::uint64_t made_;         ///< buffers that have their pages; the same on all ranks
  comm::SharedMemory memory_;  ///< has the buffers; its notes hold the counters
  base::AlignedBuffer bounce_buffer_;
};

/// Keeps the pool for the next saves and loads of one communicator, because making a pool costs page faults.
struct WindowStore {
  std::shared_ptr<WindowPool> pool;

  /// Collective. Returns the kept pool if its buffers have room for the largest `bytes` of any rank, and its bounce
  /// buffer, if it has one, for `bounce_bytes`. Otherwise makes and keeps a new pool; the old pool is freed first,
  /// unless a call in progress still holds it. A pool without a bounce buffer serves all callers, a pool with one only
  /// those that ask for one. So a save that keeps its pool and a load at the same time stay within one budget.
  std::shared_ptr<WindowPool> get(comm::Communicator& communicator, std::uint64_t bytes,
                                  std::uint64_t bounce_bytes = 0);
};

}  // namespace cairn::io
