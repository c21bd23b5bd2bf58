// Memory shared by the ranks of a node: each rank contributes a part, and all ranks of the node can address all parts.
//
// A part is an anonymous memory file (memfd), which other processes open through /proc. A process that dies leaves no
// name behind, and limits of /dev/shm do not apply. Simulated ranks, which are threads, address the parts directly. If
// sharing is refused (ranks in separate containers, /proc hidden), every rank of the node has only its own part,
// problem() gives the reason, and callers send messages. Fault hook between processes: step "windows.share".
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace cairn::comm {

class SharedMemory {
 public:
  /// kOwn: each rank reaches only its own part.
  enum class Reach { kNode, kOwn };
  static constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();

  /// Collective over `communicator`. `bytes` is the size of this rank's part, zeroed and page-aligned; it may differ
  /// between ranks; `reach` must be the same on all. The first `made_bytes` of this rank's part get their pages at
  /// once, as by make(). Throws Error(kIo) on all ranks if a rank has no memory left.
  SharedMemory(Communicator& communicator, std::uint64_t bytes, Reach reach = Reach::kNode,
               std::uint64_t made_bytes = kAll);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// The part of a rank of `communicator`; empty if it is not reachable from this rank. A rank can always reach its own
  /// part. A barrier() must separate a write from a read by another rank.
  [[nodiscard]] std::span<std::byte> of(int rank) const { return parts_[static_cast<std::size_t>(rank)].bytes; }
  [[nodiscard]] std::size_t ranks() const { return parts_.size(); }
  [[nodiscard]] bool reaches(int rank) const { return parts_[static_cast<std::size_t>(rank)].reachable; }
  /// Zeroed memory of kNoteBytes bytes next to a reachable rank's part; its page exists from the beginning.
  [[nodiscard]] std::byte* notes(int rank) const;
  static constexpr std::uint64_t kNoteBytes = 2048;

  /// Rank-local: allocates the pages of the first `bytes` of this rank's part, huge if possible. Call it before any
  /// rank uses them. Throws Error(kIo) if no memory is left; without make(), first use would end the process.
  void make(std::uint64_t bytes);

  /// Collective over the reachable ranks. Processes sleep here, because ranks may outnumber cores and the cores also
  /// serve I/O. They wake up now and then so that MPI moves messages for ranks of other nodes, and give up if no rank
  /// makes progress.
  void barrier();

  /// The reason why the node's other ranks are not reachable; empty if they are, if there are none, or with kOwn.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  class Segment;
  struct Barrier;
  struct Part {
    std::span<std::byte> bytes;
    bool reachable = false;
    bool mapped = false;  ///< mapped from another process; must be unmapped
    std::shared_ptr<Segment> of_thread;
  };
  struct Card;
  static Part open_part(const Card& card);
  static void unmap(Part& part);
  void forget_others(int rank);

  std::vector<Part> parts_;
  std::shared_ptr<Liveness> liveness_;
  std::unique_ptr<Communicator> node_;
  std::shared_ptr<Segment> own_;
  Barrier* barrier_ = nullptr;  ///< used between processes; in the segment of the node's first rank
  std::string problem_;
};

}  // namespace cairn::comm
