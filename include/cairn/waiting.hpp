// The time limit for a collective call that waits for ranks without progress.
//
// A stopped process, a lost node or storage that does not answer raises no error. Progress is any movement on any rank:
// a message, a step, a piece of a file, the removal of a file. A call waits as long as there is progress.
#pragma once

#include <functional>
#include <string>

namespace cairn {

/// The reaction to Waiting::limit_s seconds without progress on any rank.
enum class OnSilence {
  /// The call throws kState on every rank that still can. The message, one line, names the phase and step in which the
  /// call waits, and each missing rank with its host and its last known phase and step: "rank 3 of 16 (node07) is
  /// missing, last heard of in phase 'fsync' 312 s ago". Ranks report when a collective step is complete, and by
  /// heartbeats during long work and waits; a missing rank may have gone further. If many ranks are missing, the
  /// message names the first few, grouped by host and phase. The object is dead from then on: every later call throws
  /// kState at once. Transfers in progress stay with MPI: until the process ends, MPI may still read the sources of a
  /// save and write into the targets of a load, so neither may be freed or reused. Cairn leaks its own buffers for the
  /// same reason, and MPI_Finalize may hang: end the process instead. After this error from a constructor or another
  /// call that takes a communicator, no other object can be made from that communicator (kState).
  kError,
  /// As kError, but first calls Waiting::callback with the message.
  kCallback,
  /// Logs one line (log.hpp) and calls MPI_Abort with exit code 5. If the log's sink or MPI_Abort does not return,
  /// SIGALRM ends the process after 10 s.
  kEndProcess,
};

/// A rank inside a call that cannot be interrupted (storage that does not answer; engine "mpiio" below
/// MPI_THREAD_MULTIPLE, or with collective buffering) throws only when that call returns. Until then it logs one line
/// per limit, with its phase, step, rank and host, and calls the callback or ends the process.
struct Waiting {
  /// Seconds; 0: no limit. The environment variable CAIRN_WATCHDOG_S overrides this value.
  double limit_s = 1800;
  OnSilence then = OnSilence::kError;
  /// With kCallback: called on the thread of the call, or on one of Cairn's threads if that thread is stuck. The
  /// callback must not use Cairn or MPI (except MPI_Abort) and must not throw.
  std::function<void(const std::string& message)> callback;
};

}  // namespace cairn
