#include "checkpoint/device_memory.hpp"

#include <fmt/format.h>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "shard/box_math.hpp"

namespace cairn::checkpoint {

void check_device_pointer(const Shard& shard, const void* data) {
  const auto wrong = [&](const std::string& what) {
    return Error(ErrorKind::kUsage, fmt::format("tensor '{}' (section {}): {}", base::printable(shard.name),
                                                base::printable(shard.section), what));
  };
  const gpu::Availability devices = gpu::availability();
  if (devices.devices == 0) throw wrong("its memory is said to be a device's, but there is none: " + devices.reason);
  const gpu::MemoryKind kind = gpu::place_of(data).kind;
  if (data == nullptr || kind == gpu::MemoryKind::kDevice || kind == gpu::MemoryKind::kManaged) return;
  throw wrong("its memory is said to be a device's, but the pointer is not of a device");
}

std::uint64_t bytes_of(const Shard& shard) {
  std::uint64_t bits = 0;
  for (const Box& box : shard.boxes) bits += shard::elements_of(box) * bits_of(shard.dtype);
  return bits / 8;
}

gpu::Pipeline& DeviceMemory::pipeline() {
  if (!pipeline_) pipeline_ = std::make_unique<gpu::Pipeline>(gpu::PipelineOptions{kDeviceStagingBytes, 2, true});
  return *pipeline_;
}

std::span<const std::byte> DeviceMemory::to_host(const void* from, std::uint64_t bytes) {
  const auto [at, is_new] = copies_.try_emplace(from);
  if (is_new) {
    at->second.resize(bytes);
    gpu::copy_to_host(pipeline(), {static_cast<const std::byte*>(from), bytes}, at->second);
  }
  return at->second;
}

std::vector<Source> DeviceMemory::on_host(std::span<const Source> state) {
  std::vector<Source> out(state.begin(), state.end());
  for (Source& source : out) {
    const std::uint64_t bytes = bytes_of(source);
    if (source.memory == Memory::kHost) continue;
    source.memory = Memory::kHost;
    if (bytes != 0) source.data = to_host(source.data, bytes).data();
  }
  return out;
}

std::vector<Target> DeviceMemory::on_host(std::span<const Target> targets) {
  std::vector<Target> out(targets.begin(), targets.end());
  for (Target& target : out) {
    const std::uint64_t bytes = bytes_of(target);
    if (target.memory == Memory::kHost) continue;
    target.memory = Memory::kHost;
    if (bytes == 0) continue;
    base::Bytes& copy = copies_[target.data];
    copy.resize(bytes);
    pending_.push_back({{static_cast<std::byte*>(target.data), bytes}, copy});
    target.data = copy.data();
  }
  return out;
}

void DeviceMemory::give_back() {
  for (const Pending& copy : pending_) gpu::copy_to_device(pipeline(), copy.to, copy.from);
  pending_.clear();
}

}  // namespace cairn::checkpoint
