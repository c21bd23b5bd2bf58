// A group of ranks that talk: MPI in production, threads of one process in tests (tests/simulated).
//
// Every collective must be called by all ranks of the group in the same order. Sizes are 64-bit; what exceeds MPI's int
// counts is chunked inside. Failures throw Error(kIo); since a communication failure cannot be agreed on, they are
// fatal for the job in practice. Not thread-safe: one thread per communicator at a time.
//
// Nothing blocks inside MPI: every call waits in a loop (wait.hpp) that ends when no rank makes progress (liveness.hpp).
// Memory of the caller is not touched after a collective that threw; that of messages may be, once is_dead().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "comm/liveness.hpp"

namespace cairn::comm {

enum class ReduceOp { kSum, kMin, kMax, kXor, kOr };

/// Tags of point-to-point messages are 0 to kMaxTag: what every MPI has, less those of the collectives and the beats.
constexpr int kMaxTag = 32765;
/// Largest point-to-point message.
constexpr std::uint64_t kMaxMessageBytes = 1ULL << 30;

/// A pending point-to-point message. Destroying one that is not complete is a bug (Error is logged, then abort): MPI would
/// go on using the buffer. So it does when the communicator is dead; then the buffer must stay. The communicator must
/// outlive it.
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
