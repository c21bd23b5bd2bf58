// Signals that ask a training for a save or for its end, counted for all who want to know.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace cairn::life {

/// While this object lives, its signals are counted, and only call the function that the program had set for them. Any
/// number of objects may count the same signal. Destroyed in any order, on any thread.
class CountedSignals {
 public:
  /// Throws Error(kUsage) for a number that is not of a signal, or of one that cannot be caught.
  explicit CountedSignals(std::span<const int> signals);
  ~CountedSignals();
  CountedSignals(const CountedSignals&) = delete;
  CountedSignals& operator=(const CountedSignals&) = delete;

  /// Any thread: the last of the signals that arrived since the call before, or since the construction; 0: none.
  int take();

 private:
  struct Seen {
    int signal;
    std::uint32_t count;
  };
  std::vector<Seen> seen_;
};

}  // namespace cairn::life
