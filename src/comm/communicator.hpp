// A group of ranks that communicate: MPI in production, threads of one process in tests (tests/simulated).
//
// All ranks of the group must make collective calls in the same order. Sizes are 64-bit; collectives split transfers
// beyond MPI's int counts. Errors of MPI throw Error(kIo); ranks cannot agree on a failure of communication, so in
// practice it ends the job. Not thread-safe: one thread per communicator at a time.
//
// Calls wait in a loop (wait.hpp), not inside MPI (except in subgroup() and the first node()), and give up if no rank
// moves (Liveness). After a collective has thrown, MPI leaves the caller's memory alone, but not that of messages.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/error.hpp"
#include "cairn/waiting.hpp"

namespace cairn::comm {

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

enum class ReduceOp { kSum, kMin, kMax, kXor, kOr };

/// Tags of point-to-point messages: 0 to kMaxTag. Every MPI supports two more, which are for collectives and beats.
constexpr int kMaxTag = 32765;
/// Size of the largest point-to-point message.
constexpr std::uint64_t kMaxMessageBytes = 1ULL << 30;

/// A pending point-to-point message. Destroying an incomplete one is a bug (logs an error, then aborts), since MPI
/// would go on using the buffer. On a dead communicator a request may be destroyed, but its buffer must stay. The
/// communicator must outlive the request.
class Request {
 public:
  virtual ~Request() = default;
  /// Rank-local; true once the message is complete (buffer reusable, or filled).
  virtual bool test() = 0;
  /// Blocks until complete. Throws Error(kInternal) if message and buffer differ in size. Exception: when a rank sends
  /// itself a message that is too large, Open MPI silently truncates it.
  virtual void wait() = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Rank-local: the host of a rank; empty if all ranks are on one host, or the host is unknown.
  [[nodiscard]] virtual std::string_view host_of(int rank) const;
  /// Rank-local: "rank 3", or "rank 3 on node07".
  [[nodiscard]] std::string rank_name(int rank) const;

  // Collectives.
  virtual void barrier() = 0;
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  virtual void all_reduce(std::span<std::uint64_t> values, ReduceOp op) = 0;
  virtual void all_reduce(std::span<double> values, ReduceOp op) = 0;  ///< kSum, kMin, kMax only
  /// Element r of the result is the message from rank r; `outgoing` has one entry per rank.
  virtual std::vector<base::Bytes> all_to_all(std::vector<base::Bytes> outgoing) = 0;
  virtual std::vector<base::Bytes> all_gather(std::span<const std::byte> mine) = 0;
  /// One element per rank on the root; empty on all other ranks.
  virtual std::vector<base::Bytes> gather(std::span<const std::byte> mine, int root) = 0;

  // Point to point, nonblocking. Messages between two ranks with the same tag arrive in order. At most 1 GiB each.
  virtual std::unique_ptr<Request> send(std::span<const std::byte> data, int to, int tag) = 0;
  virtual std::unique_ptr<Request> receive(std::span<std::byte> data, int from, int tag) = 0;

  /// Collective over the group: a new communicator with the same ranks.
  virtual std::unique_ptr<Communicator> duplicate() = 0;
  /// Collective over the ranks [first, last] only (other ranks must not call it): a communicator of these ranks.
  virtual std::unique_ptr<Communicator> subgroup(int first, int last, int tag) = 0;

  /// Collective: a communicator of the ranks on this rank's node, in the order of their ranks here.
  virtual std::unique_ptr<Communicator> node() = 0;

  /// The object that watches the waits of this communicator; null for simulated ranks, whose waits need no watch.
  [[nodiscard]] virtual std::shared_ptr<Liveness> liveness() { return nullptr; }
  /// Whether ranks gave up or failed on this communicator, or on one that shares its liveness (a subgroup, a node()).
  /// If so, calls throw Error(kState).
  [[nodiscard]] bool is_dead() {
    const auto here = liveness();
    return here && here->is_dead();
  }
  /// Rank-local: reports progress during long work between two collectives, while other ranks may be waiting.
  void progress(std::string_view phase, const std::filesystem::path& file = {}) {
    if (const auto here = liveness()) here->progress(phase, file);
  }

  // Collectives that are built on the ones above.
  std::uint64_t sum(std::uint64_t value);
  std::uint64_t max(std::uint64_t value);
  std::uint64_t min(std::uint64_t value);
  /// The lowest rank on which `yes` is true; nothing if there is no such rank.
  std::optional<int> lowest_rank_where(bool yes);
  /// Copies the root's bytes to every rank. Only the root needs to know their size.
  void share(base::Bytes& data, int root);
  void share(std::string& text, int root);

 protected:
  // Checks of arguments, for all implementations. They throw Error(kInternal).
  void check_message(std::uint64_t bytes, int peer, int tag) const;
  void check_root(int root) const;
  void check_subgroup(int first, int last, int tag) const;
  void check_outgoing(std::size_t parts) const;
  static void check_real_reduction(ReduceOp op);
};

}  // namespace cairn::comm
