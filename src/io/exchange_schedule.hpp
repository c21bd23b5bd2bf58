// What travels in which round, worked out once from transfers and windows: for each round a list of items, peer by peer.
//
// Both ends of a pair hold the same transfers in the same order and derive the same items, hence the same messages;
// nothing but data is sent. Pairs are visited in the order of their step, (extent rank - memory rank) modulo the number
// of ranks: in a step every rank has one partner to send to and one to receive from, and since all ranks go through the
// steps in the same order with bounded buffers, the earliest unfinished message is always posted on both sides: no
// deadlock (exchange_messages.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/extents.hpp"
#include "plan/runs.hpp"

namespace cairn::io {

/// Runs of at least this size travel from user memory to the window, or back, without a copy in between.
inline constexpr std::uint64_t kDirectRunBytes = 256ULL << 10;

/// The end of its transfers that a rank is.
enum class End { kMemory, kFile };

/// The rank at the other end.
inline int peer_of(const plan::Runs& runs, End own) { return own == End::kMemory ? runs.file_rank : runs.memory_rank; }

/// The part of a transfer that lies in one part of a window.
struct Item : plan::Slice {
  std::uint64_t window_shift = 0;  ///< added (modulo 2^64) to a file offset: byte of the window buffer
};

/// Whether the runs of an item are messages of their own.
inline bool is_direct(const plan::Runs& runs, const Item& item) {
  return runs.run_bytes >= kDirectRunBytes && item.bytes >= kDirectRunBytes;
}

/// The parts of one rank's windows, flat, for finding those that runs meet.
class WindowIndex {
 public:
  /// As plan::cut_windows() cuts them.
  WindowIndex(std::span<const plan::Extent> extents, std::uint64_t window_bytes, std::uint64_t grain_bytes);

  struct Part {
    std::uint32_t file = 0;
    std::uint32_t window = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t buffer_offset = 0;
  };
  /// Parts that may meet [begin, end) of the file, ascending.
  [[nodiscard]] std::span<const Part> meeting(std::uint32_t file, std::uint64_t begin, std::uint64_t end) const;

 private:
  std::vector<Part> parts_;
};

/// One side of the exchange: the items of every round, ascending by step, then direct ones first, then by transfer.
class Schedule {
 public:
  Schedule() = default;
  Schedule(End own, std::uint64_t rounds) : own_(own), round_begin_(rounds + 1, 0) {}

  /// Adds a transfer; `windows` are those of its file rank. Call in ascending order of step, and finish() once after the
  /// last. Throws Error(kInternal) when none of its bytes lies in a window.
  void add(const plan::Runs& runs, const WindowIndex& windows);
  void finish();

  [[nodiscard]] End own() const { return own_; }
  /// All transfers; Item::runs is a place in this list.
  [[nodiscard]] std::span<const plan::Runs> runs() const { return runs_; }
  [[nodiscard]] std::span<const Item> items(std::uint64_t round) const;
  [[nodiscard]] std::uint64_t bytes(std::uint64_t round) const;
  [[nodiscard]] bool has_packed_items() const;

 private:
  struct Scheduled {
    std::uint64_t round;
    Item item;
  };
  End own_ = End::kMemory;
  std::vector<plan::Runs> runs_;
  std::vector<Scheduled> pending_;  // between add and finish
  std::vector<Item> items_;
  std::vector<std::size_t> round_begin_;  // first item of each round, and the end
};

}  // namespace cairn::io
