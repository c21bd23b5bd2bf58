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

#include "format/stored_checkpoint.hpp"
#include "io/run_geometry.hpp"
#include "plan/extents.hpp"
#include "plan/transfer.hpp"

namespace cairn::io {

/// Runs of at least this size travel from user memory to the window, or back, without a copy in between.
inline constexpr std::uint64_t kDirectRunBytes = 256ULL << 10;

/// A transfer, made ready.
struct Route {
  RunGeometry geometry;
  int peer = 0;             ///< the rank at the other end
  std::uint32_t local = 0;  ///< memory box in the memory rank's list
};

/// The part of a route that lies in one part of a window.
struct Item {
  std::uint32_t route = 0;
  bool direct = false;      ///< its runs are messages of their own
  std::uint64_t first = 0;  ///< byte position in the route's geometry
  std::uint64_t bytes = 0;
  std::uint64_t window_shift = 0;  ///< added (modulo 2^64) to a file offset: byte of the window buffer
};

/// The parts of one rank's windows, flat, for finding those that a region meets.
class WindowIndex {
 public:
  explicit WindowIndex(std::span<const plan::Window> windows);

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
  explicit Schedule(std::uint64_t rounds) : round_begin_(rounds + 1, 0) {}

  /// Adds a transfer with `peer`; call in ascending order of step, and finish() once after the last.
  void add(const plan::Transfer& transfer, const format::StoredCheckpoint& stored, const WindowIndex& windows,
           int peer);
  void finish();

  [[nodiscard]] std::span<const Route> routes() const { return routes_; }
  [[nodiscard]] std::span<const Item> items(std::uint64_t round) const;
  [[nodiscard]] std::uint64_t bytes(std::uint64_t round) const;
  [[nodiscard]] bool has_packed_items() const;

 private:
  struct Scheduled {
    std::uint64_t round;
    Item item;
  };
  std::vector<Route> routes_;
  std::vector<Scheduled> pending_;  // between add and finish
  std::vector<Item> items_;
  std::vector<std::size_t> round_begin_;  // first item of each round, and the end
};

}  // namespace cairn::io
