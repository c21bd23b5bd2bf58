// The memory of one rank for states and raw data, kept for a whole run.
//
// Memory that a process was just given is no measure of storage. On a virtual machine the first use after the kernel cleared it
// is slow still, and giving it back to the host slows all memory for a while: copies ran at a half, at worst at a sixth, of
// their speed (bench/results/loads-2026-11-21.txt). So what is timed works in memory that has been in use, and in between
// nothing is given back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.hpp"

namespace cairn::bench {

class RankMemory {
 public:
  /// The first `bytes` of one area, for whatever lies in it next; what lay there may be gone. Written before it is handed
  /// out for the first time; anew, and larger, when it is too small. Throws std::bad_alloc.
  std::span<std::byte> take(std::uint64_t bytes);
  /// `count` buffers of `bytes` each, beside the area; kept, and taken again, in the same way.
  std::span<base::AlignedBuffer> buffers(std::size_t count, std::uint64_t bytes);

 private:
  base::AlignedBuffer area_;
  std::vector<base::AlignedBuffer> buffers_;
};

}  // namespace cairn::bench
