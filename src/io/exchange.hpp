// The exchange: bytes between ranks' memory and the windows of the ranks that own the extents, in bounded rounds.
//
// Both directions use the same transfers: runs of bytes (plan/runs.hpp), made by the rank that has the memory. In round
// r every aggregator has window r of its extents in a buffer of the pool; save gathers into the windows, load
// scatters out of them. What is read in several batches, each with extents and memory of its own, is planned at once:
// rounds are numbered through. Within a node the rank that has (or wants) the bytes copies them itself; between nodes they are
// messages. Memory beyond the windows is bounded by `buffer_bytes` per rank, whatever the state. How messages are cut
// and why nothing deadlocks: src/io/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
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
  /// A message that is sent from where it lies; the same on all ranks. Beside a program that sends small messages
  /// itself, large ones make those wait.
  std::uint64_t largest_message_bytes = 256ULL << 20;
};

/// The windows of a rank, round by round.
struct Rounds {
  std::vector<plan::Window> windows;  ///< one that a batch lacks has no parts; at the end there may be fewer
  std::vector<std::uint64_t> first;   ///< round of each batch, and the number of all

  [[nodiscard]] std::uint64_t count() const { return first.back(); }
};

/// Collective: a batch has as many rounds as the rank with the most windows of it.
Rounds cut_rounds(comm::Communicator& communicator, plan::ExtentMaps extents, std::uint64_t window_bytes);

class Exchange {
 public:
  /// Collective. `mine`: transfers of this rank's memory (memory_rank is this rank), by file rank. They are sent to
  /// their aggregators, so that both ends hold them. `files`, `extents` and `window_bytes` must be equal on all
  /// ranks; of `buffer_bytes` the smallest counts. Throws Error(kInternal) on all ranks for a transfer that cannot be:
  /// broken runs, bytes behind the end of their file, none in the extents of its aggregator. `pool` has the buffers of
  /// the windows and must outlive the object's use of it.
  Exchange(comm::Communicator& communicator, std::span<const format::StoredFile> files, const plan::ExtentMap& extents,
           std::uint64_t window_bytes, WindowPool& pool, std::vector<plan::Runs> mine, ExchangeOptions options);
  /// The same for several batches: their extents, and this rank's transfers of each of them.
  Exchange(comm::Communicator& communicator, std::span<const format::StoredFile> files, plan::ExtentMaps extents,
           std::uint64_t window_bytes, WindowPool& pool, std::vector<std::vector<plan::Runs>> mine,
           ExchangeOptions options);
  ~Exchange();

  /// Rank-local, before round 0: another pool of the same communicator has the buffers from now on; the one before may
  /// be gone. False, and nothing is changed, where it has too little room or reaches other ranks.
  [[nodiscard]] bool use(WindowPool& pool);

  /// Rounds that every rank must make: of each batch the largest number of windows of any rank.
  [[nodiscard]] std::uint64_t rounds() const { return rounds_.count(); }
  /// This rank's windows, by round; those that a batch lacks have no parts, and at the end there are none.
  [[nodiscard]] const std::vector<plan::Window>& windows() const { return rounds_.windows; }
  /// This rank's window of a round.
  [[nodiscard]] WindowBuffer window(std::uint64_t round) const { return pool_->of(rounds_.windows, round); }

  /// Collective, round r: fills this rank's window from all ranks' memory; `memory` has this rank's boxes of the batch,
  /// by Runs::local. Returns the bytes that arrived (the caller knows how many it expects). Requires: nobody uses this
  /// rank's buffer. The first round of a batch checks, on all ranks alike, that the memory boxes have room for the transfers and lie where
  /// these say. With device memory on any rank, every round ends in an agreement: a device may refuse a copy.
  std::uint64_t gather(std::uint64_t round, std::span<const plan::MemoryBox> memory);

  /// Rank-local: what gather() reads in `first_round` (below rounds(), or at it: nothing) and later, by memory box. Of
  /// one batch.
  [[nodiscard]] std::vector<plan::MemorySpan> memory_from(std::uint64_t first_round) const;

  /// Collective, round r: distributes this rank's window, which holds its bytes, to all ranks' memory. Returns the
  /// bytes that arrived here. The window may be written again afterwards.
  std::uint64_t scatter(std::uint64_t round, std::span<const plan::MemoryBox> memory);

 private:
  struct State;
  void make(std::span<const format::StoredFile> files, plan::ExtentMaps extents, std::uint64_t window_bytes,
            std::vector<std::vector<plan::Runs>> mine, ExchangeOptions options);
  void append_to_messages(std::size_t batch, std::span<const plan::Runs> mine, std::size_t batches,
                          std::vector<base::Bytes>& outgoing) const;
  void check_memory(std::string_view step, std::uint64_t round, std::span<const plan::MemoryBox> memory);
  void finish_device_copies();
  comm::Communicator& communicator_;
  WindowPool* pool_;
  DeviceCopies* device_;
  bool has_device_memory_ = false;  // any rank
  Rounds rounds_;
  std::unique_ptr<State> state_;
};

}  // namespace cairn::io
