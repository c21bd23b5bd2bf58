// A group of ranks that talk: MPI in production, threads of one process in tests (tests/simulated).
//
// Every collective must be called by all ranks of the group in the same order. Sizes are 64-bit; what exceeds MPI's int
// counts is chunked inside. Failures throw Error(kIo); since a communication failure cannot be agreed on, they are
// fatal for the job in practice. Not thread-safe: one thread per communicator at a time.
//
// Nothing blocks inside MPI: every call waits in a loop (wait.hpp) that ends when no rank makes progress (Liveness).
// Memory of the caller is not touched after a collective that threw; that of messages may be, once is_dead().
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

// Which ranks of a communicator still move, and what happens when none does.
//
// A rank that waits long, or works long by itself, sends beats: a table with a row per rank (heartbeats.hpp): how many
// beats the rank has sent, whether it moved, and in which phase and step it was. Who receives a table takes the newer
// of each row, and passes the result on with its next beat (failure detection by gossip: van Renesse, Minsky, Hayden,
// 1998). Beats go to the ranks at distances of 1, 2, 4 ... on both sides: a table reaches all in log2(ranks) hops, by
// many ways, so that a rank that hangs cuts nobody off. They begin when a rank has waited (or worked) a 64th of the
// limit, so that a save without a long phase sends none; each is 12 bytes per rank, to 2 log2(ranks) ranks, 64 times
// per limit: at 4,096 ranks and 1,800 s a rank sends 40 KiB/s.
//
// A rank that moved is progress, whichever it is. Without any for the limit, the ranks of which nothing new came for
// half of it are missing. Everybody else throws, names them with their hosts (hosts.hpp) and where they were last heard
// of, and tells its neighbours, who need not wait as long; the communicator and those derived from it are dead then.
//
// Sends are synchronous, one at a time to a rank: so what is under way is bounded, and closing knows when nothing is.

class Liveness {
 public:
  virtual ~Liveness() = default;
  Liveness() = default;
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  // All rank-local. On the thread that makes the communicator's calls, but for is_dead().

  /// A call begins and ends; between them silence counts.
  virtual void begin_call() = 0;
  virtual void end_call() = 0;
  /// A wait that is not over at once; only Wait calls these. poll() moves beats, and throws Error(kState) when the
  /// limit is over, when another rank gave up, or failed alone.
  virtual void begin_wait() = 0;
  virtual void end_wait() = 0;
  virtual void poll(const char* what, std::chrono::steady_clock::duration waited) = 0;

  /// Lets MPI move messages that are under way, for a wait that tests none of them.
  virtual void move_messages() = 0;

  /// Something moved on this rank; ranks that wait for it get a beat when it is time.
  virtual void progress() = 0;
  virtual void progress(std::string_view phase, const std::filesystem::path& file) = 0;
  /// As progress(), from work that may take long: a beat when it is time. Throws nothing.
  virtual void worked() noexcept = 0;
  /// Names the step of agree() that is under way.
  virtual void step(std::string_view name) = 0;

  /// This rank fails where the others cannot know it: they throw the text that this returns, instead of waiting. Dead
  /// from then on.
  virtual std::string fail(const std::string& why) = 0;
  /// Dead as `other` is, for the same reason, if that is dead: a communicator of the same ranks, who know it by that one.
  virtual void follow(const Liveness& other) = 0;
  [[nodiscard]] virtual bool is_dead() const = 0;
  /// Why; of a dead one.
  [[nodiscard]] virtual std::string reason() const = 0;
  /// Throws Error(kState) when dead.
  virtual void check() const = 0;
  /// As check(), at the beginning of a wait: a rank that comes late hears first whether the others have given it up.
  virtual void arrive() = 0;
};

enum class ReduceOp { kSum, kMin, kMax, kXor, kOr };

/// Tags of point-to-point messages are 0 to kMaxTag: what every MPI has, less those of the collectives and the beats.
constexpr int kMaxTag = 32765;
/// Largest point-to-point message.
constexpr std::uint64_t kMaxMessageBytes = 1ULL << 30;

/// A pending point-to-point message. Destroying one that is not complete is a bug (Error is logged, then abort): MPI
/// would go on using the buffer. So it does when the communicator is dead; then the buffer must stay. The communicator
/// must outlive it.
class Request {
 public:
  virtual ~Request() = default;
  /// Rank-local; true once the message is complete (buffer reusable, or filled).
  virtual bool test() = 0;
  /// Blocks until complete. A message of another size than the buffer is Error(kInternal) (except that Open MPI cuts a
  /// larger one of a rank to itself silently).
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

  /// Rank-local: the host of a rank, where the ranks are on several hosts; empty where they are not, or it is not known.
  [[nodiscard]] virtual std::string_view host_of(int rank) const;
  /// Rank-local: "rank 3", or "rank 3 on node07".
  [[nodiscard]] std::string rank_name(int rank) const;

  // Collectives.
  virtual void barrier() = 0;
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  virtual void all_reduce(std::span<std::uint64_t> values, ReduceOp op) = 0;
  virtual void all_reduce(std::span<double> values, ReduceOp op) = 0;  ///< kSum, kMin, kMax only
  /// Element r of the result is what rank r sent here; `outgoing` has one entry per rank.
  virtual std::vector<base::Bytes> all_to_all(std::vector<base::Bytes> outgoing) = 0;
  virtual std::vector<base::Bytes> all_gather(std::span<const std::byte> mine) = 0;
  /// On the root what each rank gave, elsewhere empty.
  virtual std::vector<base::Bytes> gather(std::span<const std::byte> mine, int root) = 0;

  // Point to point, non-blocking; messages between two ranks with one tag arrive in order. At most 1 GiB each.
  virtual std::unique_ptr<Request> send(std::span<const std::byte> data, int to, int tag) = 0;
  virtual std::unique_ptr<Request> receive(std::span<std::byte> data, int from, int tag) = 0;

  /// Collective over the group: a new communicator with the same ranks.
  virtual std::unique_ptr<Communicator> duplicate() = 0;
  /// Collective over the ranks [first, last] only (others must not call): a communicator of just them.
  virtual std::unique_ptr<Communicator> subgroup(int first, int last, int tag) = 0;

  /// Collective: a communicator of the ranks that run on this rank's node, in the order of their ranks here.
  virtual std::unique_ptr<Communicator> node() = 0;

  /// What watches over waits here; null where nothing does (simulated ranks notice by themselves).
  [[nodiscard]] virtual std::shared_ptr<Liveness> liveness() { return nullptr; }
  /// The ranks gave each other up, here or on a communicator that this one was derived from: calls throw Error(kState).
  [[nodiscard]] bool is_dead() {
    const auto here = liveness();
    return here && here->is_dead();
  }
  /// Rank-local: something moved, in work that may take long between two collectives; others may wait for it.
  void progress(std::string_view phase, const std::filesystem::path& file = {}) {
    if (const auto here = liveness()) here->progress(phase, file);
  }

  // Conveniences on top of the above. Collective.
  std::uint64_t sum(std::uint64_t value);
  std::uint64_t max(std::uint64_t value);
  std::uint64_t min(std::uint64_t value);
  /// The lowest rank that says yes; nothing when none does.
  std::optional<int> lowest_rank_where(bool yes);
  /// Collective: the root's bytes (any size, known to the root only) on every rank.
  void share(base::Bytes& data, int root);
  void share(std::string& text, int root);

 protected:
  // What every implementation checks of its arguments; Error(kInternal).
  void check_message(std::uint64_t bytes, int peer, int tag) const;
  void check_root(int root) const;
  void check_subgroup(int first, int last, int tag) const;
  void check_outgoing(std::size_t parts) const;
  static void check_real_reduction(ReduceOp op);
};

}  // namespace cairn::comm
