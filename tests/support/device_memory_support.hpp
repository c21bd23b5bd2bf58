// Bytes in device memory, for tests: written and read by separate streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/stream.hpp"

namespace cairn::test {

class DeviceBytes {
 public:
  explicit DeviceBytes(std::span<const std::byte> bytes) : memory_(bytes.size()) {
    const gpu::Stream stream;
    stream.copy(memory_.span(), bytes);
    stream.synchronise();
  }

  [[nodiscard]] std::byte* data() const { return memory_.span().data; }
  [[nodiscard]] std::uint64_t size() const { return memory_.size(); }
  [[nodiscard]] std::vector<std::byte> bytes() const {
    std::vector<std::byte> found(memory_.size());
    const gpu::Stream stream;
    stream.copy(found, memory_.span());
    stream.synchronise();
    return found;
  }

 private:
  gpu::DeviceBuffer memory_;
};

}  // namespace cairn::test
