// Moments in device memory: a codec's kernels code them there (piece_coder.hpp), so only codes are copied to the host,
// and the elements of split blocks, in pieces (coding_exchange.hpp), and those whose errors are measured.
//
// Uncoded tensors are copied by io/device_copies.hpp. Options::memory_budget_bytes does not include the pinned memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "gpu/pipeline.hpp"
#include "plan/pieces.hpp"
#include "plan/runs.hpp"

namespace cairn::codes {

/// Bytes of pinned memory for copies from a device to the host; the scratch memory on the device has the same size.
inline constexpr std::uint64_t kDeviceStagingBytes = 32ULL << 20;

/// Rank-local. Copies from the device that is current at the first use, and allocates nothing until then.
/// Requires that the device has finished writing the copied memory.
class DeviceMemory {
 public:
  /// Copies bytes [first, first + to.size()) of a box's runs in device memory, in the order of the runs.
  void copy_to_host(const plan::MemoryBox& box, const plan::Runs& runs, std::uint64_t first, std::span<std::byte> to);

  gpu::Pipeline& pipeline();

 private:
  std::unique_ptr<gpu::Pipeline> pipeline_;
};

}  // namespace cairn::codes
