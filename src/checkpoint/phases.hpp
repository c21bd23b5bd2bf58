// Time and bytes per phase, reduced over ranks at the end.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "comm/communicator.hpp"

namespace cairn::checkpoint {

/// Rank-local stopwatch with named phases in the order of their first use. Every rank must use the same names in the same
/// order. Takes no memory but its own: to begin a phase cannot fail.
class PhaseClock {
 public:
  PhaseClock();
  /// Ends the running phase and begins (or continues) `name`, a literal. At most 16 of them.
  void begin(std::string_view name);
  void add_bytes(std::uint64_t bytes);
  void stop();
  /// Each begin() is progress of this rank from now on; null ends that.
  void watch(std::shared_ptr<comm::Liveness> liveness) { liveness_ = std::move(liveness); }
  [[nodiscard]] double seconds() const;  ///< since construction

  /// Collective: the largest of seconds().
  double slowest_seconds(comm::Communicator& communicator) const;
  /// Collective.
  std::vector<Phase> reduce(comm::Communicator& communicator) const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Row {
    std::string_view name;
    double seconds = 0;
    std::uint64_t bytes = 0;
  };
  Clock::time_point start_;
  Clock::time_point phase_start_;
  [[nodiscard]] std::span<const Row> rows() const { return std::span(rows_).first(count_); }

  std::array<Row, 16> rows_;
  std::size_t count_ = 0;
  std::size_t current_;
  std::shared_ptr<comm::Liveness> liveness_;
};

}  // namespace cairn::checkpoint
