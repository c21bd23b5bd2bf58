// Moments in device memory: a codec's kernels code them there (piece_coder.hpp), so only codes are copied to the host,
// and, in pieces, the elements of blocks that no single rank holds (coding_exchange.hpp).
//
// Uncoded tensors go through io/device_copies.hpp. The pinned memory is on top of Options::memory_budget_bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gpu/pipeline.hpp"
#include "plan/pieces.hpp"
#include "plan/runs.hpp"

namespace cairn::codes {

/// Pinned memory for copies between host and device; the scratch memory on the device has the same size.
inline constexpr std::uint64_t kDeviceStagingBytes = 32ULL << 20;

/// Rank-local. Copies from the device that is current at the first use, and allocates nothing until then.
/// Requires that the device has finished writing the copied memory.
class DeviceMemory {
 public:
  /// Bytes [first, first + to.size()) of runs of a box in device memory, in their order.
  void copy_to_host(const plan::MemoryBox& box, const plan::Runs& runs, std::uint64_t first, std::span<std::byte> to);

  gpu::Pipeline& pipeline();

 private:
  std::unique_ptr<gpu::Pipeline> pipeline_;
};

}  // namespace cairn::codes
