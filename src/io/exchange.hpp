// The exchange: bytes between ranks' memory and the windows of the ranks that own the extents, in bounded rounds.
//
// Both directions use the same transfers: runs of bytes (plan/runs.hpp), made by the rank that has the memory. In round
// r every aggregator has window r of its extents in a buffer of the pool; save gathers into the windows, load
// scatters out of them. Within a node the rank that has (or wants) the bytes copies them itself; between nodes they are
// messages. Memory beyond the windows is bounded by `buffer_bytes` per rank, whatever the state. How messages are cut
// and why nothing deadlocks: src/io/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "format/stored_checkpoint.hpp"
#include "io/device_copies.hpp"
#include "io/window_pool.hpp"
#include "plan/pieces.hpp"
#include "plan/runs.hpp"

namespace cairn::io {

struct ExchangeOptions {
  std::uint64_t buffer_bytes = 64ULL << 20;  ///< send and receive buffers together, per rank
  DeviceCopies* device = nullptr;  ///< for transfers of device memory, where there are any; outlives the object
};

class Exchange {
 public:
  /// Collective. `mine`: transfers of this rank's memory (memory_rank is this rank), by file rank. They are sent to
  /// their aggregators, so that both ends hold them. `files`, `extents` and `window_bytes` must be equal on all
  /// ranks; of `buffer_bytes` the smallest counts. Throws Error(kInternal) on all ranks for a transfer that cannot be:
  /// broken runs, bytes behind the end of their file, none in the extents of its aggregator. `pool` has the buffers of
  /// the windows and must outlive the object's use of it.
  Exchange(comm::Communicator& communicator, std::span<const format::StoredFile> files, const plan::ExtentMap& extents,
           std::uint64_t window_bytes, WindowPool& pool, std::vector<plan::Runs> mine, ExchangeOptions options);
  ~Exchange();

  /// Rank-local, before round 0: another pool of the same communicator has the buffers from now on; the one before may
  /// be gone. False, and nothing is changed, where it has too little room or reaches other ranks.
  [[nodiscard]] bool use(WindowPool& pool);

  /// Rounds that every rank must make: the largest number of windows of any rank.
  [[nodiscard]] std::uint64_t rounds() const { return rounds_; }
  /// This rank's windows.
  [[nodiscard]] const std::vector<plan::Window>& windows() const { return windows_; }
  /// This rank's window of a round.
  [[nodiscard]] WindowBuffer window(std::uint64_t round) const { return pool_->of(windows_, round); }

  /// Collective, round r: fills this rank's window from all ranks' memory; `memory` has this rank's boxes, by
  /// Runs::local. Returns the bytes that arrived (the caller knows how many it expects). Requires: nobody uses this
  /// rank's buffer. Round 0 checks, on all ranks alike, that the memory boxes have room for the transfers and lie where
  /// these say. With device memory on any rank, every round ends in an agreement: a device may refuse a copy.
  std::uint64_t gather(std::uint64_t round, std::span<const plan::MemoryBox> memory);

  /// Collective, round r: distributes this rank's window, which holds its bytes, to all ranks' memory. Returns the
  /// bytes that arrived here. The window may be written again afterwards.
  std::uint64_t scatter(std::uint64_t round, std::span<const plan::MemoryBox> memory);

 private:
  struct State;
  void finish_device_copies();
  comm::Communicator& communicator_;
  WindowPool* pool_;
  DeviceCopies* device_;
  bool has_device_memory_ = false;  // any rank
  std::uint64_t rounds_ = 0;
  std::vector<plan::Window> windows_;
  std::unique_ptr<State> state_;
};

}  // namespace cairn::io
