// The one way in which this layer waits: look, and look again, less and less often, until a deadline.
//
//   Wait wait(liveness, "all_reduce");
//   while (!done()) wait.pause();
//
// `done` tests something nonblocking and so moves MPI on; nothing ever blocks inside MPI, so the same loop serves the
// thread of a caller and a thread of our own. First the looks follow each other at once, for what takes microseconds;
// then the core is offered to others between them, as long as a round of a save may take; only then the rank sleeps, 1
// ms at a time. Sleeping at once cost a save and a load in memory 8 % each: each rank is late by its sleep, and all
// wait for the latest.
//
// A thread that works behind a program's own (PatientWaits) leaves the core at once instead: a rank that looks again
// and again, even between yields, takes its core from that program.
#pragma once

#include <chrono>

namespace cairn::comm {

class Liveness;

/// While it lives, waits of this thread sleep between their looks from the beginning: 50 us at a time, 1 ms after 20 ms.
class PatientWaits {
 public:
  PatientWaits();
  ~PatientWaits();
  PatientWaits(const PatientWaits&) = delete;
  PatientWaits& operator=(const PatientWaits&) = delete;
};

class Wait {
 public:
  /// `what` is waited for, in messages: "all_reduce". Without `liveness` there is no deadline. Throws Error(kState) at
  /// once when the communicator is dead.
  Wait(Liveness* liveness, const char* what);
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  /// After a look in vain. Throws what Liveness::poll throws.
  void pause();
  /// As pause(), for a caller that can be woken: returns at once, with the seconds to sleep at most, 0 at first.
  [[nodiscard]] double look_again();
  /// Something moved, but not all: starts over.
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
