// What a quantised save has written.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "checkpoint/open.hpp"
#include "environment.hpp"
#include "moment_state.hpp"

namespace cairn::test {

/// The bytes of a stored tensor, straight from its file.
inline std::vector<std::byte> stored_bytes(const checkpoint::OpenCheckpoint& opened, const std::string& section,
                                           const std::string& name) {
  for (const auto& tensor : opened.stored.tensors) {
    if (tensor.section != section || tensor.name != name) continue;
    const auto& box = tensor.boxes.at(0);
    const std::string file = read_file(opened.directory / opened.stored.files[box.file].name);
    std::vector<std::byte> bytes(shard::elements_of(tensor.shape) * bits_of(tensor.dtype) / 8);
    std::memcpy(bytes.data(), file.data() + box.offset_bytes, bytes.size());
    return bytes;
  }
  return {};
}

}  // namespace cairn::test
