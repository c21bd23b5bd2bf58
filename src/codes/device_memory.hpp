// Moments in device memory: a codec's kernels code them there (piece_coder.hpp), and only codes come to the host.
// Elements of blocks that no rank holds whole come as they are, in pieces (coding_exchange.hpp).
//
// What is not coded goes through io/device_copies.hpp. The pinned memory here is beside Options::memory_budget_bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gpu/pipeline.hpp"
#include "plan/pieces.hpp"
#include "plan/runs.hpp"

namespace cairn::codes {

/// Pinned memory of the copies between host and device, and as much scratch memory on the device.
inline constexpr std::uint64_t kDeviceStagingBytes = 32ULL << 20;

/// Rank-local. Copies from the device that is current when it is first used; nothing is taken before. Requires that the
/// device has finished writing what is copied.
class DeviceMemory {
 public:
  /// Bytes [first, first + to.size()) of runs of a box in device memory, in their order.
  void copy_to_host(const plan::MemoryBox& box, const plan::Runs& runs, std::uint64_t first, std::span<std::byte> to);

  gpu::Pipeline& pipeline();

 private:
  std::unique_ptr<gpu::Pipeline> pipeline_;
};

}  // namespace cairn::codes
