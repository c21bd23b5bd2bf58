// A group of ranks that communicate: MPI in production, threads of one process in tests (tests/simulated).
//
// All ranks of the group must call every collective in the same order. Sizes are 64-bit; transfers beyond MPI's int
// counts are split. Failures throw Error(kIo); since ranks cannot agree on a communication failure, it is fatal for the
// job in practice. Not thread-safe: one thread per communicator at a time.
//
// No call blocks inside MPI: each waits in a loop (wait.hpp) that ends when no rank makes progress (Liveness). After a
// collective threw, the caller's memory is not touched; memory of messages may be touched if is_dead().
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

// Liveness: tells which ranks of a communicator still make progress, and reacts if none does.
//
// A rank that waits long, or works long by itself, sends heartbeats ("beats"): a table with a row per rank
// (heartbeats.hpp), with the number of beats the rank has sent, whether it moved, and its phase and step.
//   - A receiver keeps the newer of each row, and passes the result on with its next beat (failure detection by gossip:
//     van Renesse, Minsky, Hayden, 1998).
//   - Beats go to the ranks at distances of 1, 2, 4 ... on both sides: a table reaches all in log2(ranks) hops, by many
//     ways, so that a rank that hangs cuts off no other.
//   - They begin when a rank has waited (or worked) a 64th of the limit: a save without a long phase sends none.
//   - Each is 12 bytes per rank, to 2 log2(ranks) ranks, 64 times per limit: at 4,096 ranks and 1,800 s a rank sends
//     40 KiB/s.
//   - Sends are synchronous, one at a time to a rank: this bounds the messages in flight, and close knows when none is
//     left.
//
// A move of any rank is progress. After the limit without progress, ranks without news for half of the limit are
// missing. Every other rank throws, names them with their hosts (hosts.hpp) and last known places, and tells its
// neighbours, which then throw earlier; the communicator and those derived from it are dead from then on.

class Liveness {
 public:
  virtual ~Liveness() = default;
  Liveness() = default;
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // All calls are rank-local; all except is_dead() are made on the thread that makes the communicator's calls.

  /// Begin and end of a call; silence counts in between.
  virtual void begin_call() = 0;
  virtual void end_call() = 0;
  /// A wait that does not end at once; only Wait makes these calls. poll() sends and receives beats, and throws
  /// Error(kState) after the limit, or if another rank gave up or failed alone.
  virtual void begin_wait() = 0;
  virtual void end_wait() = 0;
  virtual void poll(const char* what, std::chrono::steady_clock::duration waited) = 0;

  /// Lets MPI make progress on messages, for a wait that does not test any message.
  virtual void move_messages() = 0;

  /// Reports progress on this rank; waiting ranks get a beat when one is due.
  virtual void progress() = 0;
  virtual void progress(std::string_view phase, const std::filesystem::path& file) = 0;
  /// As progress(), during work that may take long; sends a beat when one is due. Throws nothing.
  virtual void worked() noexcept = 0;
  /// Names the current step of agree().
  virtual void step(std::string_view name) = 0;

  /// Marks this rank as failed if the others cannot know it: they throw an error with the returned message instead of
  /// waiting. The communicator is dead from now on.
  virtual std::string fail(const std::string& why) = 0;
  /// If `other` is dead, a communicator of the same ranks, dies for the same reason; the other ranks learn of it there.
  virtual void follow(const Liveness& other) = 0;
  [[nodiscard]] virtual bool is_dead() const = 0;
  /// The reason why the communicator is dead.
  [[nodiscard]] virtual std::string reason() const = 0;
  /// Throws Error(kState) when dead.
  virtual void check() const = 0;
  /// As check(), at the beginning of a wait: a late rank first learns whether the others have given up.
  virtual void arrive() = 0;
};

enum class ReduceOp { kSum, kMin, kMax, kXor, kOr };

/// Tags of point-to-point messages are 0 to kMaxTag: the tags that every MPI has, less those of collectives and beats.
constexpr int kMaxTag = 32765;
/// Largest point-to-point message.
constexpr std::uint64_t kMaxMessageBytes = 1ULL << 30;

/// A pending point-to-point message. Destroying an incomplete one is a bug (logs an error, then aborts), since MPI
/// would go on using the buffer. On a dead communicator a request may be destroyed, but its buffer must stay. The
/// communicator must outlive it.
class Request {
 public:
  virtual ~Request() = default;
  /// Rank-local; true once the message is complete (buffer reusable, or filled).
  virtual bool test() = 0;
  /// Blocks until complete. Error(kInternal) if the sizes of message and buffer differ; but Open MPI silently truncates
  /// a message that is too large if a rank sends it to itself.
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

  // Point to point, nonblocking. Messages between two ranks with one tag arrive in order. At most 1 GiB each.
  virtual std::unique_ptr<Request> send(std::span<const std::byte> data, int to, int tag) = 0;
  virtual std::unique_ptr<Request> receive(std::span<std::byte> data, int from, int tag) = 0;

  /// Collective over the group: a new communicator with the same ranks.
  virtual std::unique_ptr<Communicator> duplicate() = 0;
  /// Collective over the ranks [first, last] only (others must not call): a communicator of these ranks.
  virtual std::unique_ptr<Communicator> subgroup(int first, int last, int tag) = 0;

  /// Collective: a communicator of the ranks on this rank's node, in the order of their ranks here.
  virtual std::unique_ptr<Communicator> node() = 0;

  /// The object that watches the waits of this communicator; null if they are not watched (simulated ranks need no
  /// watch).
  [[nodiscard]] virtual std::shared_ptr<Liveness> liveness() { return nullptr; }
  /// Whether the ranks gave up waiting, here or on a communicator from which this one derives: then calls throw
  /// Error(kState).
  [[nodiscard]] bool is_dead() {
    const auto here = liveness();
    return here && here->is_dead();
  }
  /// Rank-local: reports progress in long work between two collectives, for which other ranks may be waiting.
  void progress(std::string_view phase, const std::filesystem::path& file = {}) {
    if (const auto here = liveness()) here->progress(phase, file);
  }

  // Built on the above. Collective.
  std::uint64_t sum(std::uint64_t value);
  std::uint64_t max(std::uint64_t value);
  std::uint64_t min(std::uint64_t value);
  /// The lowest rank on which `yes` is true; nothing if there is no such rank.
  std::optional<int> lowest_rank_where(bool yes);
  /// The root's bytes (of any size, known to the root only) on every rank.
  void share(base::Bytes& data, int root);
  void share(std::string& text, int root);

 protected:
  // Checks arguments for all implementations; throws Error(kInternal).
  void check_message(std::uint64_t bytes, int peer, int tag) const;
  void check_root(int root) const;
  void check_subgroup(int first, int last, int tag) const;
  void check_outgoing(std::size_t parts) const;
  static void check_real_reduction(ReduceOp op);
};

}  // namespace cairn::comm
