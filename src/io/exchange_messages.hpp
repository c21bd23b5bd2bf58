// The schedule, and one round of messages: sending, receiving, and the loop that advances both.
//
// 1. Sender and receiver cut a pair's items into the same messages (PacketCutter).
// 2. Messages are posted in the order of the schedule, packed ones while a slot of the arena is free; slots come back
//    in any order. So the earliest unfinished message of all ranks is posted by its sender and its receiver, and the
//    loop always advances. It blocks on a message only when this rank has no other message left to post.
// 3. Memory for packed messages is bounded by the arena, and does not grow with the state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "io/device_copies.hpp"
#include "plan/extents.hpp"
#include "plan/runs.hpp"

namespace cairn::io {

// The schedule, made once from transfers and windows: for each round a list of items, peer by peer.
//
// Both ends of a pair hold the same transfers in the same order and derive the same items, hence the same messages;
// only data are sent. Pairs are visited in the order of their steps. The step of a pair is (file rank - memory rank)
// modulo the number of ranks. In a step every rank has one partner to send to and one to receive from. All ranks go
// through the steps in the same order with bounded buffers, so the earliest unfinished message is always posted on both
// sides: no deadlock.

/// Runs of at least this size travel from the user's host memory to the window, or back, without a copy in between.
inline constexpr std::uint64_t kZeroCopyRunBytes = 256ULL << 10;

/// An end of a transfer.
enum class End { kMemory, kFile };

/// The rank at the other end.
inline int peer_of(const plan::Runs& runs, End own) { return own == End::kMemory ? runs.file_rank : runs.memory_rank; }

/// The part of a transfer that lies in one part of a window.
struct Item : plan::Slice {
  std::uint64_t window_shift = 0;  ///< file offset + window_shift (modulo 2^64) = offset in the window's buffer
};

/// Whether the runs of an item are sent as zero-copy messages, each run separately.
inline bool is_direct(const plan::Runs& runs, const Item& item) {
  return runs.memory == Memory::kHost && runs.run_bytes >= kZeroCopyRunBytes && item.bytes >= kZeroCopyRunBytes;
}

/// The parts of one rank's windows in a flat list, to find those that runs overlap.
class WindowIndex {
 public:
  /// The windows are those that plan::cut_windows() returns; the first one belongs to round `first_round`.
  WindowIndex(std::span<const plan::Extent> extents, std::uint64_t window_bytes, std::uint64_t block_bytes,
              std::uint64_t first_round = 0);

  struct Part {
    std::uint32_t file = 0;
    std::uint32_t round = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t buffer_offset = 0;
  };
  /// Parts that overlap [begin, end) of the file, ascending.
  [[nodiscard]] std::span<const Part> meeting(std::uint32_t file, std::uint64_t begin, std::uint64_t end) const;

 private:
  std::vector<Part> parts_;
};

/// One side of the exchange: the items of each round, by step; in a step, zero-copy items first, then by transfer.
class Schedule {
 public:
  Schedule() = default;
  /// `largest_message_bytes`: limit on the size of a zero-copy message.
  Schedule(End own, std::uint64_t rounds, std::uint64_t largest_message_bytes)
      : own_(own), largest_message_bytes_(largest_message_bytes), round_begin_(rounds + 1, 0) {}

  /// Reserves memory for this many transfers, because a list needs twice its memory for a moment while it grows.
  void reserve(std::size_t transfers);
  /// Adds a transfer; `windows` are those of its file rank. In each batch, add transfers in ascending order of step;
  /// then call finish() once. Throws Error(kInternal) if no byte of the transfer lies in a window.
  void add(const plan::Runs& runs, const WindowIndex& windows);
  /// Adds many transfers; `windows_of` gives the windows of a file rank. Without an earlier reserve(), the first list
  /// is moved instead of copied: a rank may have 100,000 transfers of 200 bytes.
  void add(std::vector<plan::Runs> transfers, const std::function<WindowIndex(int)>& windows_of);
  void finish();

  [[nodiscard]] End own() const { return own_; }
  /// All transfers; Item::runs is an index into this list.
  [[nodiscard]] std::span<const plan::Runs> runs() const { return runs_; }
  [[nodiscard]] std::span<const Item> items(std::uint64_t round) const;
  [[nodiscard]] std::uint64_t bytes(std::uint64_t round) const;
  [[nodiscard]] bool has_packed_items() const;
  [[nodiscard]] std::uint64_t largest_message_bytes() const { return largest_message_bytes_; }
  /// Widens `spans`, which has one span for each memory box number, to contain the items of `first_round` and later.
  /// Requires: the schedule's end is kMemory.
  void cover_memory(std::uint64_t first_round, std::vector<plan::MemorySpan>& spans) const;

 private:
  struct Scheduled {
    std::uint64_t round;
    Item item;
  };
  void schedule(std::uint32_t number, const WindowIndex& windows);
  End own_ = End::kMemory;
  std::uint64_t largest_message_bytes_ = 0;
  std::vector<plan::Runs> runs_;
  std::vector<Scheduled> pending_;  // between add and finish
  std::vector<Item> items_;
  std::vector<std::size_t> round_begin_;  // first item of each round, then the number of items
};

/// The items of one side in one round, and their bytes on this rank: in memory boxes, or in the window. Pointer is
/// `const std::byte*` on the sending side.
template <class Pointer>
struct Side {
  const Schedule& schedule;
  std::span<const Item> items;
  std::span<const plan::MemoryBox> memory;  ///< by Runs::local, if this side is the memory
  Pointer window = nullptr;                 ///< if this side is the file
  DeviceCopies* device = nullptr;           ///< needed for boxes in device memory
};

/// Equal slots for packed messages, allocated once.
class SlotArena {
 public:
  SlotArena() = default;
  SlotArena(std::uint64_t slot_bytes, std::uint64_t slots);
  [[nodiscard]] bool has_free() const { return !free_.empty(); }
  std::byte* take();
  void give_back(std::byte* slot) { free_.push_back(slot); }

 private:
  std::unique_ptr<std::byte[]> memory_;
  std::vector<std::byte*> free_;  // last in, first out, so that the slot is still in the cache
};

/// A message: `bytes` bytes, from byte `offset` of item number `item` on. A packed message may continue in the peer's
/// next items.
struct Packet {
  int peer = 0;
  bool zero_copy = false;
  std::size_t item = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

/// Cuts the items of a round into messages.
class PacketCutter {
 public:
  PacketCutter(const Schedule& schedule, std::span<const Item> items, std::uint64_t slot_bytes);
  [[nodiscard]] const std::optional<Packet>& next() const { return next_; }
  void advance();

 private:
  const Schedule& schedule_;
  std::span<const Item> items_;
  std::uint64_t slot_bytes_;
  // The first byte that is not yet in a message:
  std::size_t item_ = 0;
  std::uint64_t offset_ = 0;
  std::optional<Packet> next_;
};

/// Posts and completes the messages of one direction; packs before a send and unpacks after a receive.
template <class Pointer>
class Lane {
 public:
  Lane(comm::Communicator& communicator, const Side<Pointer>& side, SlotArena& arena, std::uint64_t slot_bytes);
  [[nodiscard]] bool done() const { return in_flight_.empty() && !cutter_.next(); }
  /// Posts and completes messages as far as possible without blocking; true if any message advanced.
  bool poll();
  [[nodiscard]] bool all_posted() const { return !cutter_.next(); }
  /// Blocks until done. Requires: both lanes of this rank have posted all messages.
  void finish();
  [[nodiscard]] std::uint64_t completed_bytes() const { return completed_bytes_; }

 private:
  struct InFlight {
    Packet message;
    std::byte* slot;  // null for zero-copy messages
    std::unique_ptr<comm::Request> request;
  };
  bool post_next();
  void complete(InFlight& flight);

  comm::Communicator& communicator_;
  const Side<Pointer>& side_;
  SlotArena& arena_;
  PacketCutter cutter_;
  std::vector<InFlight> in_flight_;
  std::uint64_t packed_in_flight_bytes_ = 0;
  std::uint64_t completed_bytes_ = 0;
};

extern template class Lane<const std::byte*>;
extern template class Lane<std::byte*>;

/// Copies the bytes that need no message, between this rank's memory and the windows that it can address on its node.
/// The copies are made in bounded pieces between the messages.
class LocalCopy {
 public:
  enum class Direction { kToWindows, kToMemory };

  /// `memory` is this rank's side; with kToWindows it is only read. `windows[r]` is rank r's window in this round,
  /// needed for the file ranks of the items. All arguments must outlive the object. Copies of device memory are in
  /// flight until DeviceCopies::settle().
  LocalCopy(Direction direction, const Side<std::byte*>& memory, std::span<std::byte* const> windows)
      : direction_(direction), memory_(memory), windows_(windows) {}
  [[nodiscard]] bool done() const { return item_ == memory_.items.size(); }
  void copy_some();
  [[nodiscard]] std::uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  void copy(const Item& item, std::uint64_t bytes) const;

  Direction direction_;
  Side<std::byte*> memory_;
  std::span<std::byte* const> windows_;
  std::size_t item_ = 0;
  std::uint64_t offset_ = 0;
  std::uint64_t copied_bytes_ = 0;
};

/// Runs a round to its end.
void run_messages(comm::Communicator& communicator, Lane<const std::byte*>& outgoing, Lane<std::byte*>& incoming,
                  LocalCopy& local);

}  // namespace cairn::io
