// The exchange: moves bytes between ranks' memory and the windows of the ranks that own the extents, in bounded rounds.
//
// Both directions use the same transfers: runs of bytes (plan/runs.hpp), made by the rank that has the memory. In round
// r every aggregator has window r of its extents in a buffer of the pool. A save gathers bytes into the windows, and a
// load scatters them from the windows. Several batches, each with separate extents and memory, can be planned at once,
// with rounds numbered through all batches. Within a node the rank that has (or wants) the bytes copies them itself;
// between nodes the bytes travel as messages. The buffers of messages take at most `buffer_bytes` per rank, however
// large the state is. src/io/README.md describes how messages are cut, and why there is no deadlock.
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
  DeviceCopies* device = nullptr;            ///< needed for transfers of device memory; must outlive the Exchange
  /// The largest zero-copy message; must be equal on all ranks. Large messages delay the small messages of a program
  /// that runs at the same time.
  std::uint64_t largest_message_bytes = 256ULL << 20;
};

/// The windows of a rank, round by round.
struct Rounds {
  std::vector<plan::Window> windows;  ///< by round; a window without parts stands for none; the list may end early
  std::vector<std::uint64_t> first;   ///< first round of each batch, then the number of rounds

  [[nodiscard]] std::uint64_t count() const { return first.back(); }
};

/// Collective. A batch has one round for each window of the rank that has the most windows in this batch.
Rounds cut_rounds(comm::Communicator& communicator, plan::ExtentMaps extents, std::uint64_t window_bytes);

class Exchange {
 public:
  /// Collective. `mine`: transfers of this rank's memory (memory_rank is this rank). A transfer is sent to its
  /// aggregator unless the pool reaches that rank, so that both ends have it. `files`, `extents` and `window_bytes`
  /// must be equal on all ranks; the smallest `buffer_bytes` of all is used. `pool` has the buffers of the windows, and
  /// must stay valid while the Exchange uses it. Throws Error(kInternal) on all ranks for an impossible transfer, such
  /// as broken runs, bytes past the end of their file, or no byte in the aggregator's extents.
  Exchange(comm::Communicator& communicator, std::span<const format::StoredFile> files, const plan::ExtentMap& extents,
           std::uint64_t window_bytes, WindowPool& pool, std::vector<plan::Runs> mine, ExchangeOptions options);
  /// For several batches: `extents` and `mine` have one element for each batch.
  Exchange(comm::Communicator& communicator, std::span<const format::StoredFile> files, plan::ExtentMaps extents,
           std::uint64_t window_bytes, WindowPool& pool, std::vector<std::vector<plan::Runs>> mine,
           ExchangeOptions options);
  ~Exchange();

  /// Rank-local, before round 0: switches to the buffers of a new pool of the same communicator; the previous pool may
  /// be gone. Returns false, and changes nothing, if the new pool is too small or reaches a different set of ranks.
  [[nodiscard]] bool use(WindowPool& pool);

  /// Number of rounds, the same on all ranks: the sum, over the batches, of the largest number of windows of a rank.
  [[nodiscard]] std::uint64_t rounds() const { return rounds_.count(); }
  /// This rank's windows, by round; a window without parts stands for none. The list may be shorter than rounds().
  [[nodiscard]] const std::vector<plan::Window>& windows() const { return rounds_.windows; }
  /// This rank's window of a round.
  [[nodiscard]] WindowBuffer window(std::uint64_t round) const { return pool_->of(rounds_.windows, round); }

  /// Collective: fills this rank's window of `round` from all ranks' memory; `memory` has this rank's boxes of the
  /// batch, by Runs::local. Returns the number of bytes that arrived in the window, which the caller can check.
  /// Requires: the window's buffer is not in use. In the first round of a batch all ranks check that their memory boxes
  /// are large enough for the transfers and lie on the expected side (host or device). With device memory on any rank,
  /// every round ends in an agreement, since a device may refuse a copy.
  std::uint64_t gather(std::uint64_t round, std::span<const plan::MemoryBox> memory);

  /// Rank-local, for an exchange of one batch: for each memory box, the span of the bytes that gather() reads in rounds
  /// from `first_round` on; empty if `first_round` is rounds().
  [[nodiscard]] std::vector<plan::MemorySpan> memory_from(std::uint64_t first_round) const;

  /// Collective: distributes this rank's window of `round`, which the caller has filled, to all ranks' memory. Returns
  /// the number of bytes that arrived in this rank's memory. The window may be written again afterwards.
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
  bool has_device_memory_ = false;  // on any rank
  Rounds rounds_;
  std::unique_ptr<State> state_;
};

}  // namespace cairn::io
