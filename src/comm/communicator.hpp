// A group of ranks that communicate: MPI in production, threads of one process in tests (tests/simulated).
//
// All ranks of the group must make collective calls in the same order. Sizes are 64-bit; collectives split transfers
// beyond MPI's int counts. Errors of MPI throw Error(kIo); ranks cannot agree on a failure of communication, so in
// practice it ends the job. Not thread-safe: one thread per communicator at a time.
//
// Calls wait in a loop (wait.hpp), not inside MPI (except in subgroup() and the first node()), and give up if no rank
// moves (Liveness). After a collective has thrown, MPI leaves the caller's memory alone, but not that of messages.
#pragma once

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
#include "comm/liveness.hpp"

namespace cairn::comm {

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
