#include "codes/device_memory.hpp"

namespace cairn::checkpoint {

gpu::Pipeline& DeviceMemory::pipeline() {
  if (!pipeline_) pipeline_ = std::make_unique<gpu::Pipeline>(gpu::PipelineOptions{kDeviceStagingBytes, 2, true});
  return *pipeline_;
}

/// Calls use(device memory, host memory, whether that is new) for each shard that lies on a device.
template <class Use>
void DeviceMemory::point_to_host(std::span<LocalBox> boxes, Use use) {
  while (!boxes.empty()) {
    const std::byte* from = boxes.front().data;
    std::uint64_t bytes = 0;
    std::size_t count = 0;
    for (; count < boxes.size() && boxes[count].shard == boxes[0].shard; ++count) bytes += boxes[count].bytes;
    const std::span<LocalBox> shard = boxes.first(count);
    boxes = boxes.subspan(count);
    if (shard[0].memory == Memory::kHost) continue;
    const auto [copy, is_new] = copies_.try_emplace({from, bytes}, bytes);
    if (bytes != 0) use(gpu::DeviceSpan{shard[0].data, bytes}, copy->second, is_new);
    for (LocalBox& box : shard) {
      box.data = copy->second.data() + (box.data - from);
      box.memory = Memory::kHost;
    }
  }
}

void DeviceMemory::bring(std::span<LocalBox> boxes) {
  point_to_host(boxes, [&](gpu::DeviceSpan device, std::span<std::byte> host, bool is_new) {
    if (is_new) gpu::copy_to_host(pipeline(), device, host);
  });
}

void DeviceMemory::stand_in(std::span<LocalBox> boxes) {
  point_to_host(boxes, [&](gpu::DeviceSpan device, std::span<std::byte> host, bool) {
    pending_.push_back({device, host});
  });
}

void DeviceMemory::give_back() {
  for (const Pending& copy : pending_) gpu::copy_to_device(pipeline(), copy.to, copy.from);
  pending_.clear();
}

}  // namespace cairn::checkpoint
