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
// cleared it, is slow, and giving memory back to the host slows all memory for a while. Copies then ran at half their
// speed, at worst at a sixth (bench/results/loads-2026-11-21.txt). So timed work uses memory that has been used before,
// and memory is not given back in between.

class RankMemory {
 public:
  /// The first `bytes` of one area, with undefined content. The area has been written before. If it is too small, a
  /// larger area replaces it. Throws std::bad_alloc.
  std::span<std::byte> take(std::uint64_t bytes);
  /// `count` buffers of `bytes` each, separate from the area, and also kept and reused.
  std::span<base::AlignedBuffer> buffers(std::size_t count, std::uint64_t bytes);

 private:
  base::AlignedBuffer area_;
  std::vector<base::AlignedBuffer> buffers_;
};

// Work for the first few ranks while the others sleep.
//
// A rank that waits in an MPI call spins, and takes processor time from the measured ranks. Here a waiting rank sleeps,
// and tests for a message a few hundred times a second.

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
