// What a rank has heard of every rank: what beats carry, how two tables become one, and the words for who is missing.
// Sees no MPI. The protocol is in communicator.hpp.
//
// A place is a phase and a step. Beats carry a hash of it; the rank that names a place has most likely been there,
// since all ranks go the same way, and remembers the last ones.
//
// Beats alone would seldom tell where a rank was, because in most saves there are none before it hangs. So every
// collective of all ranks counts as a meeting: to complete it each of them must have come, to the place where this one
// was. The number of meetings also says whether a beat is older than the last meeting, however long its way was.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/hosts.hpp"

namespace cairn::comm {

class Heartbeats {
 public:
  using Clock = std::chrono::steady_clock;
  Heartbeats(int rank, int size, Clock::time_point now);

  // Of this rank. None of these takes memory.

  /// What was heard before says nothing of this call.
  void begin_call();
  /// Takes the step back as well, unless the phase is the one that is under way.
  void enter_phase(std::string_view phase);
  void enter_step(std::string_view step);
  void move() { moved_ = true; }
  /// All ranks took part in a collective that is complete.
  void meet(Clock::time_point now);
  void beat(Clock::time_point now);

  // A table on its way.

  [[nodiscard]] std::span<const std::byte> bytes() const { return std::as_bytes(std::span(rows_)); }
  /// Takes in another rank's table, which is as large; true when any rank has moved. Takes no memory.
  bool merge(std::span<const std::byte> table, Clock::time_point now);

  /// "rank 3 of 16 (node07) is missing, last heard of in phase 'write' 312 s ago", of the ranks that sent no beat since
  /// `since`; on one line of a few hundred bytes, in groups of one host and place. `hosts` may be null.
  [[nodiscard]] std::string missing(Clock::time_point since, Clock::time_point now, const Hosts* hosts) const;

 private:
  /// 12 bytes, of the rank's last beat.
  struct Row {
    std::uint32_t beats = 0;     ///< how many the rank has sent; 0: this row says nothing
    std::uint32_t meetings = 0;  ///< how many were behind it
    std::uint16_t moves = 0;     ///< changes when it has moved since the beat before
    std::uint16_t place = 0;     ///< Place::code
  };
  struct Place {
    std::uint16_t code = 0;
    std::array<char, 24> phase{};
    std::array<char, 64> step{};
  };
  struct Heard {
    std::uint16_t place = 0;
    Clock::time_point at;
  };
  struct Group;

  void enter();
  [[nodiscard]] bool was_heard(std::size_t rank, Heard& heard) const;
  [[nodiscard]] std::string place_text(std::uint16_t code) const;
  [[nodiscard]] std::vector<Group> groups_of(const std::vector<int>& ranks, const Hosts* hosts) const;

  std::size_t rank_;
  std::vector<Row> rows_;
  std::vector<Clock::time_point> seen_;  ///< when each row became newer
  std::uint32_t meetings_ = 0;
  std::uint32_t meetings_before_call_ = 0;
  Heard met_;  ///< at the last meeting
  Place here_;
  std::array<Place, 32> places_{};  ///< a ring of the last ones
  std::size_t next_place_ = 0;
  bool moved_ = false;
};

}  // namespace cairn::comm
