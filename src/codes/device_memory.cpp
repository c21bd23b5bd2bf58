#include "codes/device_memory.hpp"

#include <algorithm>
#include <cstring>

#include "base/checked.hpp"

namespace cairn::codes {

gpu::Pipeline& DeviceMemory::pipeline() {
  if (!pipeline_) pipeline_ = std::make_unique<gpu::Pipeline>(gpu::PipelineOptions{kDeviceStagingBytes, 2, true});
  return *pipeline_;
}

void DeviceMemory::copy_to_host(const plan::MemoryBox& box, const plan::Runs& runs, std::uint64_t first,
                                std::span<std::byte> to) {
  const std::uint64_t piece_bytes = pipeline().piece_bytes();
  pipeline().to_host(
      base::ceil_div(to.size(), piece_bytes),
      [&](std::uint64_t piece, gpu::DeviceSpan scratch, const gpu::Stream& stream) {
        const gpu::DeviceSpan room = scratch.subspan(0, std::min(piece_bytes, to.size() - piece * piece_bytes));
        std::byte* at = room.data;
        for (plan::RunCursor cursor(runs, first + piece * piece_bytes, room.size); !cursor.done();) {
          const plan::RunBatch batch = cursor.next();
          stream.copy_rows({at, batch.length_bytes, box.bytes.data() + batch.memory_offset, batch.memory_stride,
                            batch.length_bytes, batch.count});
          at += batch.length_bytes * batch.count;
        }
        return room;
      },
      [&](std::uint64_t piece, std::span<const std::byte> bytes) {
        std::memcpy(to.data() + piece * piece_bytes, bytes.data(), bytes.size());
      });
}

}  // namespace cairn::codes
