// Memory that a rank keeps for a whole run, and work for the first few ranks while the others wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.hpp"
#include "comm/communicator.hpp"

namespace cairn::bench {

// The memory of one rank for states and raw data, kept for a whole run.
//
// New memory distorts measurements of storage. On a virtual machine even the second use of a page, after the kernel
// cleared it, is slow, and giving memory back to the host slows all memory for a while: copies ran at a half, at worst
// at a sixth, of their speed (bench/results/loads-2026-11-21.txt). So timed work uses memory that has been used before,
// and memory is not given back in between.

class RankMemory {
 public:
  /// The first `bytes` of one area, with undefined content. The area has been written before; a larger area replaces it
  /// if it is too small. Throws std::bad_alloc.
  std::span<std::byte> take(std::uint64_t bytes);
  /// `count` buffers of `bytes` each, apart from the area; kept and reused in the same way.
  std::span<base::AlignedBuffer> buffers(std::size_t count, std::uint64_t bytes);

 private:
  base::AlignedBuffer area_;
  std::vector<base::AlignedBuffer> buffers_;
};

// Work for the first few ranks while the others wait asleep.
//
// A rank that waits in an MPI call spins, and takes processors from the measured ranks. Here it sleeps, and tests for a
// message a few hundred times a second.

class RankGroups {
 public:
  /// `world` must outlive the object.
  explicit RankGroups(comm::Communicator& world) : world_(world) {}

  [[nodiscard]] comm::Communicator& world() { return world_; }

  /// Collective over the world. The first `ranks` ranks run `work` on a separate communicator (kept for the next call),
  /// and the others sleep until the work is done. An Error that all ranks of the group throw is thrown on all ranks.
  void run(int ranks, const std::function<void(comm::Communicator&)>& work);

 private:
  void work_and_tell(int ranks, const std::function<void(comm::Communicator&)>& work);
  void wait_asleep();

  comm::Communicator& world_;
  std::map<int, std::unique_ptr<comm::Communicator>> groups_;
};

}  // namespace cairn::bench
