// Memory that the ranks of a node have in common: each gives a part, all address all parts.
//
// Between processes an anonymous memory file per rank (memfd), which the others open through /proc: no name is left
// behind whatever dies, and no limit of /dev/shm applies. Between simulated ranks, which are threads, plain memory.
// Where it is refused (ranks in containers of their own, /proc hidden) every rank of that node has its own part only,
// and `problem()` says why: callers then send messages. Fault hook: step "windows.share" refuses it, between processes.
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
  /// kOwn: as if every rank had a node of its own.
  enum class Reach { kNode, kOwn };
  static constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();

  /// Collective over `communicator`. `bytes` is this rank's part, zeroed and page aligned, the same or another on each
  /// rank; `reach` must be the same on all. Of it `made_bytes` have pages at once, all in the end: see make(). Throws
  /// Error(kIo) on all ranks when a rank has no memory left.
  SharedMemory(Communicator& communicator, std::uint64_t bytes, Reach reach = Reach::kNode,
               std::uint64_t made_bytes = kAll);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  /// The part of a rank of `communicator`; empty when it cannot be addressed from here. A rank's own part always can.
  /// Who reads what another wrote needs a barrier() between.
  [[nodiscard]] std::span<std::byte> of(int rank) const { return parts_[static_cast<std::size_t>(rank)].bytes; }
  [[nodiscard]] std::size_t ranks() const { return parts_.size(); }
  [[nodiscard]] bool reaches(int rank) const { return parts_[static_cast<std::size_t>(rank)].reachable; }
  /// kNoteBytes besides the part of a rank that is reached, zeroed, with their page from the beginning.
  [[nodiscard]] std::byte* notes(int rank) const;
  static constexpr std::uint64_t kNoteBytes = 2048;

  /// Rank-local: gives the first bytes of this rank's part their pages, huge ones where there are any, before anybody
  /// uses them. Throws Error(kIo) when there is no memory left; without this, a signal would tell.
  void make(std::uint64_t bytes);

  /// Collective over the ranks that this one reaches. Processes sleep in it: ranks may outnumber cores, and cores have
  /// input and output to serve meanwhile. They wake to move messages, for which ranks of other nodes may wait; like
  /// every wait it ends when no rank makes progress.
  void barrier();

  /// Why the other ranks of the node cannot be reached; empty when they can, and on a node of one rank.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  class Segment;
  struct Barrier;
  struct Part {
    std::span<std::byte> bytes;
    bool reachable = false;
    bool mapped = false;  ///< of another process: to unmap
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
  Barrier* barrier_ = nullptr;  ///< between processes; in the segment of the node's first rank
  std::string problem_;
};

}  // namespace cairn::comm
