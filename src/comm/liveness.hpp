// Liveness: tells which ranks of a communicator still make progress, and reacts if no rank does.
//
// A rank that waits or works for a long time sends heartbeats ("beats"). A beat is a table with a row per rank
// (heartbeats.hpp): the number of beats that the rank has sent, whether it moved, and a hash of its phase and step.
//   - A receiver keeps the newer version of each row, and passes the result on with its next beat (failure detection by
//     gossip: van Renesse, Minsky, Hayden, 1998).
//   - Beats are sent to the ranks at distances of 1, 2, 4 ... on both sides. A table reaches all ranks in log2(ranks)
//     hops, along many paths, so a rank that hangs does not cut off any other.
//   - A rank sends a beat when its last beat is older than a 64th of the limit, and it works or has waited that long.
//   - A beat has 12 bytes per rank and 1.4 KB for a reason, and is sent to at most 2 log2(ranks) ranks, 64 times per
//     limit: with 4,096 ranks and a limit of 1,800 s, a rank sends 40 KiB/s.
//   - Sends are synchronous, with one at a time to each rank: this bounds the number of messages in flight, and
//     MpiLiveness::close() can tell when no message is left.
//
// Any rank's move is progress. After the limit without progress, ranks without news for half of the limit are missing.
// Every other rank throws, names the missing ranks with their hosts (hosts.hpp) and last known places, and tells its
// neighbours, which then throw earlier. The communicator, its subgroups and its node() are dead from then on.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>

namespace cairn::comm {

class Liveness {
 public:
  virtual ~Liveness() = default;
  Liveness() = default;
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // All calls are rank-local. All except is_dead() must be made on the thread that uses the communicator.

  /// Beginning and end of a public call; the watchdog counts silence in between.
  virtual void begin_call() = 0;
  virtual void end_call() = 0;
  /// For a wait that does not end at once; only Wait makes these calls. poll() sends and receives beats, and throws
  /// Error(kState) after the limit, or if another rank gave up or failed alone.
  virtual void begin_wait() = 0;
  virtual void end_wait() = 0;
  virtual void poll(const char* what, std::chrono::steady_clock::duration waited) = 0;

  /// Lets MPI make progress on messages during a wait that does not test a message.
  virtual void move_messages() = 0;

  /// Reports progress on this rank. The second overload also names phase and file, and sends a beat when one is due.
  virtual void progress() = 0;
  virtual void progress(std::string_view phase, const std::filesystem::path& file) = 0;
  /// As progress(), during work that may take long; sends a beat when one is due. Throws nothing.
  virtual void worked() noexcept = 0;
  /// Names the current step of agree().
  virtual void step(std::string_view name) = 0;

  /// For a failure of this rank that the other ranks would not notice: they throw an error with the returned message
  /// instead of waiting. The communicator is dead from then on.
  virtual std::string fail(const std::string& why) = 0;
  /// If `other`, which must have the same ranks, is dead, this object dies for the same reason, and tells no rank.
  virtual void follow(const Liveness& other) = 0;
  [[nodiscard]] virtual bool is_dead() const = 0;
  /// The reason why the communicator is dead.
  [[nodiscard]] virtual std::string reason() const = 0;
  /// Throws Error(kState) when dead, or when MPI has been finalised.
  virtual void check() const = 0;
  /// As check(), at the beginning of a wait: a late rank first learns whether other ranks have given up.
  virtual void arrive() = 0;
};

}  // namespace cairn::comm
