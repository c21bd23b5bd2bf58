// Shards in device memory: host copies for a save, and for a load.
//
// Moments that a codec codes are coded on the device (piece_coder.hpp), and only their codes come to the host. Everything
// else of a save is copied to host memory as a whole, for as long as the save runs; so is what a load fills, before it goes to
// the device. That memory is beside Options::memory_budget_bytes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/checkpoint.hpp"
#include "gpu/pipeline.hpp"
#include "planning/describe.hpp"

namespace cairn::checkpoint {

/// Pinned memory of the copies between host and device, and as much scratch memory on the device.
inline constexpr std::uint64_t kDeviceStagingBytes = 32ULL << 20;

/// Rank-local. Copies from and to the device that is current when it is made. Nothing is taken before it is needed; boxes in
/// host memory are left as they are. Host memory lives as long as the object.
class DeviceMemory {
 public:
  /// Points boxes to copies in host memory. Requires that the device has finished writing them. Here and below, neighbours
  /// of one shard lie end to end, as local_boxes() gives them.
  void bring(std::span<LocalBox> boxes);

  /// Points boxes to host memory that is to be filled; give_back() copies to the device what was.
  void stand_in(std::span<LocalBox> boxes);
  void give_back();

  gpu::Pipeline& pipeline();

 private:
  struct Pending {
    gpu::DeviceSpan to;
    std::span<const std::byte> from;
  };
  template <class Use>
  void point_to_host(std::span<LocalBox> boxes, Use use);

  std::unique_ptr<gpu::Pipeline> pipeline_;
  std::map<std::pair<const std::byte*, std::uint64_t>, base::Bytes> copies_;  ///< by device pointer and bytes
  std::vector<Pending> pending_;
};

}  // namespace cairn::checkpoint
