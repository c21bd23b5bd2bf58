// Shards in device memory: host copies for a save, and for a load.
//
// Moments that a codec codes are coded on the device (piece_coder.hpp), and only their codes come to the host. Everything
// else of a save is copied to host memory as a whole, for as long as the save runs; so is what a load fills, before it goes to
// the device. That memory is beside Options::memory_budget_bytes.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/checkpoint.hpp"
#include "gpu/pipeline.hpp"

namespace cairn::checkpoint {

/// Pinned memory of the copies between host and device, and as much scratch memory on the device.
inline constexpr std::uint64_t kDeviceStagingBytes = 32ULL << 20;

/// Throws Error(kUsage) naming the tensor where there is no device, or the pointer is not of a device's memory.
void check_device_pointer(const Shard& shard, const void* data);

/// Bytes of all boxes of a shard.
std::uint64_t bytes_of(const Shard& shard);

/// Rank-local. Copies from and to the device that is current when it is made. Nothing is taken before it is needed.
class DeviceMemory {
 public:
  /// Its memory on the host, which lives as long as this object. Requires that the device has finished writing it.
  std::span<const std::byte> to_host(const void* from, std::uint64_t bytes);

  /// The sources with host pointers.
  std::vector<Source> on_host(std::span<const Source> state);

  /// Targets with host pointers that are to be filled; give_back() copies to the device what was.
  std::vector<Target> on_host(std::span<const Target> targets);
  void give_back();

  gpu::Pipeline& pipeline();

 private:
  struct Pending {
    gpu::DeviceSpan to;
    std::span<const std::byte> from;
  };
  std::unique_ptr<gpu::Pipeline> pipeline_;
  std::map<const void*, base::Bytes> copies_;  ///< by device pointer
  std::vector<Pending> pending_;
};

}  // namespace cairn::checkpoint
