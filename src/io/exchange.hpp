// The exchange: bytes between ranks' memory and the windows of the ranks that own the extents, in bounded rounds.
//
// Both directions use the same transfers (plan/transfer.hpp). In round r every extent owner has window r of its extents
// in a buffer; save gathers into the windows, load scatters out of them. Memory beyond the windows is bounded by
// `buffer_bytes` per rank, whatever the state. How messages are cut and why nothing deadlocks: src/io/README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "plan/transfer.hpp"

namespace cairn::io {

/// A window of this rank: its parts lie end to end in `buffer`, in the order of window.parts.
struct WindowBuffer {
  const plan::Window* window = nullptr;  ///< null: no window in this round
  std::span<std::byte> buffer;
};

struct ExchangeOptions {
  std::uint64_t buffer_bytes = 64ULL << 20;  ///< send and receive buffers together, per rank
};

class Exchange {
 public:
  /// Collective. `mine`: transfers of this rank's memory (memory_rank is this rank). They are sent to their extent
  /// owners (fixed-size records), so that both ends hold them. `extents` and `window_bytes` must be equal on all ranks;
  /// of `buffer_bytes` the smallest counts. Throws Error(kInternal) on all ranks for a transfer that contradicts
  /// `stored` or `extents`.
  Exchange(comm::Communicator& communicator, const format::StoredCheckpoint& stored, const plan::ExtentMap& extents,
           std::uint64_t window_bytes, std::vector<plan::Transfer> mine, ExchangeOptions options);
  ~Exchange();

  /// Rounds that every rank must make: the largest number of windows of any rank.
  [[nodiscard]] std::uint64_t rounds() const { return rounds_; }
  /// This rank's windows.
  [[nodiscard]] const std::vector<plan::Window>& windows() const { return windows_; }

  /// Collective, round r: fills this rank's window from all ranks' memory. `memory[l]` is local memory box number l,
  /// row-major. Returns the bytes that arrived (the caller knows how many it expects). Round 0 checks, on all ranks
  /// alike, that the memory boxes have the sizes that the transfers say.
  std::uint64_t gather(std::uint64_t round, std::span<const std::span<const std::byte>> memory, WindowBuffer window);

  /// Collective, round r: distributes this rank's window to all ranks' memory. Returns the bytes that arrived here.
  std::uint64_t scatter(std::uint64_t round, WindowBuffer window, std::span<const std::span<std::byte>> memory);

 private:
  struct State;
  comm::Communicator& communicator_;
  std::uint64_t rounds_ = 0;
  std::vector<plan::Window> windows_;
  std::unique_ptr<State> state_;
};

}  // namespace cairn::io
