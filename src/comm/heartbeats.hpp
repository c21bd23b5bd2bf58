// The table of heartbeats: a rank's knowledge of all ranks, merging of tables, and the report of missing ranks.
// Does not use MPI. communicator.hpp describes the protocol.
//
// A place is a phase and a step. Beats carry a hash of the place. The receiver can usually name the place, because all
// ranks pass through the same places, and each rank remembers its recent places.
//
// Beats alone would seldom tell where a rank was, because a rank may hang long after its last beat. So every complete
// barrier or reduction of all ranks is a meeting: each rank must have been at this rank's place. The number of meetings
// also tells whether a beat is older than the last meeting, however long the beat travelled.
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

  // Calls that change this rank's own state; they do not allocate.

  /// Marks earlier beats as old, because they do not concern the new call.
  void begin_call();
  /// Sets the phase and clears the step, unless `phase` is already the current phase.
  void enter_phase(std::string_view phase);
  void enter_step(std::string_view step);
  void move() { moved_ = true; }
  /// Call when a barrier or reduction of all ranks is complete.
  void meet(Clock::time_point now);
  void beat(Clock::time_point now);

  // The table of beats, as it is sent.

  [[nodiscard]] std::span<const std::byte> bytes() const { return std::as_bytes(std::span(rows_)); }
  /// Merges another rank's table, of the same size; true if any rank has moved. Does not allocate.
  bool merge(std::span<const std::byte> table, Clock::time_point now);

  /// "rank 3 of 16 (node07) is missing, last heard of in phase 'write' 312 s ago": lists the ranks without a beat since
  /// `since`, grouped by host and place, on one line of a few hundred bytes. `hosts` may be null.
  [[nodiscard]] std::string missing(Clock::time_point since, Clock::time_point now, const Hosts* hosts) const;

 private:
  /// A rank's last beat, in 12 bytes.
  struct Row {
    std::uint32_t beats = 0;     ///< number of beats that the rank has sent; 0: unknown
    std::uint32_t meetings = 0;  ///< number of the rank's meetings before this beat
    std::uint16_t moves = 0;     ///< changes when the rank has moved since its previous beat
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
  std::vector<Clock::time_point> seen_;  ///< time of each row's last update
  std::uint32_t meetings_ = 0;
  std::uint32_t meetings_before_call_ = 0;
  Heard met_;  ///< place and time of the last meeting
  Place here_;
  std::array<Place, 32> places_{};  ///< a ring; a place is added when the rank enters it and the ring lacks it
  std::size_t next_place_ = 0;
  bool moved_ = false;
};

}  // namespace cairn::comm
