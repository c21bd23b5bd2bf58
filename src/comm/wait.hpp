// Waits of this layer: they poll, less and less often, until a deadline.
//
//   Wait wait(liveness, "all_reduce");
//   while (!done()) wait.pause();
//
// `done` tests a nonblocking operation, which also lets MPI make progress. Waits do not block inside MPI, so the same
// loop serves a caller's thread and our own threads. pause()
//   1. at first returns at once, for operations that take microseconds;
//   2. then yields the core, for as long as a round of a save may take;
//   3. then sleeps 1 ms at a time.
// Sleeping from the start made saves and loads in memory 8 % slower: each rank is late by up to its sleep, and all
// wait for the last rank.
//
// A background thread (PatientWaits) sleeps from the start: polling, even with yields, takes a core from the program.
#pragma once

#include <chrono>

namespace cairn::comm {

class Liveness;

/// During its lifetime, waits of this thread sleep from the start: 50 us at a time, 1 ms after 20 ms.
class PatientWaits {
 public:
  PatientWaits();
  ~PatientWaits();
  PatientWaits(const PatientWaits&) = delete;
  PatientWaits& operator=(const PatientWaits&) = delete;
};

class Wait {
 public:
  /// `what` names the awaited operation in messages: "all_reduce". Without `liveness` there is no deadline. Throws
  /// Error(kState) at once if the communicator is dead.
  Wait(Liveness* liveness, const char* what);
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  /// Call after an unsuccessful test. Throws the errors of Liveness::poll().
  void pause();
  /// As pause(), for a caller that can be woken: does not sleep, but returns the longest time to sleep, in seconds; 0
  /// at first, except under PatientWaits.
  [[nodiscard]] double look_again();
  /// Reports progress while the wait continues. The pauses are short again from then on.
  void moved();

 private:
  using Clock = std::chrono::steady_clock;
  Liveness* liveness_;
  const char* what_;
  int looks_ = 0;
  bool slow_ = false;
  Clock::time_point start_;
};

}  // namespace cairn::comm
