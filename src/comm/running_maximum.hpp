// A maximum over all ranks that is found while the program goes on: begun in one call, read in the next.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.hpp"

namespace cairn::comm {

/// Uses a communicator of its own (duplicate()), with which nothing else is done meanwhile; only ranks of MPI.
class RunningMaximum {
 public:
  /// Rank-local. `count`: numbers of each reduction, the same on all ranks.
  RunningMaximum(Communicator& communicator, std::size_t count);
  /// Gives up after at most ten seconds if other ranks do not take part; then leaks its memory, which MPI may use.
  ~RunningMaximum();
  RunningMaximum(const RunningMaximum&) = delete;
  RunningMaximum& operator=(const RunningMaximum&) = delete;

  /// Rank-local: begins a reduction of these numbers, none below 0. The one before must have been read.
  void begin(std::span<const std::int64_t> numbers);
  [[nodiscard]] bool is_running() const;
  /// Waits for the ranks that have not begun; returns the maxima. Throws Error(kState) if waits end, as all waits do.
  std::span<const std::int64_t> read();
  /// As read(), for the end of the object or of MPI: gives up after `seconds`. Throws nothing.
  void end(double seconds) noexcept;

 private:
  struct Running;
  Communicator& communicator_;
  std::unique_ptr<Running> running_;
};

}  // namespace cairn::comm
