#include "codes/device_memory.hpp"

namespace cairn::checkpoint {

gpu::Pipeline& DeviceMemory::pipeline() {
  if (!pipeline_) pipeline_ = std::make_unique<gpu::Pipeline>(gpu::PipelineOptions{kPinnedBytes, 2, true});
  return *pipeline_;
}

/// Calls use(device memory, host memory, whether that is new) for each shard that lies on a device.
template <class Use>
void DeviceMemory::point_to_host(std::span<plan::MemoryBox> boxes, Use use) {
  while (!boxes.empty()) {
    const std::byte* from = boxes.front().bytes.data();
    std::uint64_t bytes = 0;
    std::size_t count = 0;
    for (; count < boxes.size() && boxes[count].tensor == boxes[0].tensor; ++count) {
      bytes += boxes[count].bytes.size();
    }
    const std::span<plan::MemoryBox> shard = boxes.first(count);
    boxes = boxes.subspan(count);
    if (shard[0].memory == Memory::kHost) continue;
    const auto [copy, is_new] = copies_.try_emplace({from, bytes}, bytes);
    if (bytes != 0) use(gpu::DeviceSpan{shard[0].bytes.data(), bytes}, copy->second, is_new);
    for (plan::MemoryBox& box : shard) {
      box.bytes = {copy->second.data() + (box.bytes.data() - from), box.bytes.size()};
      box.memory = Memory::kHost;
    }
  }
}

void DeviceMemory::copy_to_host(std::span<plan::MemoryBox> boxes) {
  point_to_host(boxes, [&](gpu::DeviceSpan device, std::span<std::byte> host, bool is_new) {
    if (is_new) gpu::copy_to_host(pipeline(), device, host);
  });
}

void DeviceMemory::use_host_copies(std::span<plan::MemoryBox> boxes) {
  point_to_host(boxes, [&](gpu::DeviceSpan device, std::span<std::byte> host, bool) {
    pending_.push_back({device, host});
  });
}

void DeviceMemory::copy_to_device() {
  for (const Pending& copy : pending_) gpu::copy_to_device(pipeline(), copy.to, copy.from);
  pending_.clear();
}

}  // namespace cairn::checkpoint
