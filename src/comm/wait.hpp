// The one way to wait in this layer: poll, less and less often, until a deadline.
//
//   Wait wait(liveness, "all_reduce");
//   while (!done()) wait.pause();
//
// `done` tests a nonblocking operation and so makes MPI progress. No thread ever blocks inside MPI, so that the same
// loop serves the thread of a caller and our own threads. pause()
//   1. returns at once, for operations that take microseconds;
//   2. then yields the core, for as long as a round of a save may take;
//   3. then sleeps 1 ms at a time.
// Sleeping from the start made a save and a load in memory 8 % slower each: each rank is late by its sleep,
// all wait for the last.
//
// A thread in the background of a program (PatientWaits) sleeps from the start: polling, even with yields, would
// take the program's core.
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

  /// Call after an unsuccessful test. Throws as Liveness::poll.
  void pause();
  /// As pause(), for a caller that can be woken: does not sleep, but returns the longest time to sleep, in seconds; 0
  /// at first.
  [[nodiscard]] double look_again();
  /// Reports progress while the wait continues: starts over with short pauses.
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
