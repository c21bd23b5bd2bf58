// How long a collective call waits for other ranks, and what happens when none of them makes progress any more.
//
// A stopped process, a lost node or storage that does not answer raise no error by themselves. Progress is any movement
// on any rank: a message, a step, a piece of a file, a file removed. A call waits as long as there is progress.
#pragma once

#include <functional>
#include <string>

namespace cairn {

/// What follows after Waiting::limit_s seconds without progress on any rank.
enum class OnSilence {
  /// The call throws kState on every rank that still can. The message, one line, names the phase and step that wait,
  /// and each missing rank with its host and the phase and step in which it was last heard of: "rank 3 of 16 (node07)
  /// is missing, last heard of in phase 'fsync' 312 s ago". Ranks are heard of when a collective step is complete, and
  /// by heartbeats during long work and long waits; the rank may have gone on since. When many ranks are missing, the
  /// message names the first few, in groups of one host and phase.
  /// The object is dead from then on: every later call throws kState at once. Transfers in progress stay with MPI:
  /// until the process ends, MPI may still read the sources of a save and write into the targets of a load, so neither
  /// may be freed or reused. Cairn leaks its own buffers for the same reason, and MPI_Finalize may hang: end the
  /// process instead. When a constructor, or another call that takes a communicator, throws this, no other object can
  /// be made of that communicator (kState).
  kError,
  /// As kError, after Waiting::callback was called with the message.
  kCallback,
  /// Logs one line (log.hpp), and calls MPI_Abort with exit code 5. When the log's sink or MPI_Abort does not return,
  /// the process ends by SIGALRM after 10 s.
  kEndProcess,
};

/// A rank inside a call that cannot be left (storage that does not answer; engine "mpiio" below MPI_THREAD_MULTIPLE, or
/// with collective buffering) throws only when that call returns. Until then it logs one line per limit, with its
/// phase, step, rank and host, and calls the callback or ends the process.
struct Waiting {
  /// 0: wait for ever. The environment variable CAIRN_WATCHDOG_S replaces it.
  double limit_s = 1800;
  OnSilence then = OnSilence::kError;
  /// With kCallback: called on the thread of the call, or on a thread of Cairn's when that one is stuck. Must not use
  /// Cairn or MPI (except MPI_Abort) and must not throw.
  std::function<void(const std::string& message)> callback;
};

}  // namespace cairn
