// What a quantised save has written.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "checkpoint/open.hpp"
#include "environment.hpp"
#include "moment_state.hpp"
#include "quant/whole.hpp"

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

/// Compares every stored tensor with the content that coding the whole state gives.
inline void expect_codes_of_the_whole(const std::filesystem::path& directory, const quant::Codec& codec) {
  const checkpoint::OpenCheckpoint opened = checkpoint::open_here(directory);
  std::size_t coded = 0;
  std::size_t compared = 0;
  std::size_t expected_tensors = 0;
  for (const StateTensor& tensor : moment_state()) {
    const bool is_first = tensor.name.ends_with("/moment1_0");
    const bool is_moment = is_first || tensor.name.ends_with("/moment2_0");
    if (!is_moment || !codec.left_alone(tensor.shape).empty()) {
      ++expected_tensors;
      compared += stored_bytes(opened, tensor.section, tensor.name) == moment_bytes(tensor, 1) ? 1 : 0;
      continue;
    }
    if (!is_first) continue;
    StateTensor second = tensor;
    second.name.replace(second.name.size() - 9, 9, "moment2_0");
    const auto m = moment_values(tensor, 1);
    const auto v = moment_values(second, 1);
    const quant::Encoded whole = quant::encode_whole(codec, {tensor.name, tensor.shape}, {m, v});
    const auto parts = codec.parts(tensor.shape);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      ++expected_tensors;
      const std::string name = quant::stored_name(parts[p], {tensor.name, second.name});
      EXPECT_TRUE(stored_bytes(opened, "optimizer", name) == whole[p]) << codec.traits().name << ' ' << name;
      compared += 1;
    }
    ++coded;
  }
  EXPECT_EQ(opened.quantised.size(), coded);
  EXPECT_GE(coded, 3U);
  EXPECT_EQ(compared, expected_tensors);
  EXPECT_EQ(opened.stored.tensors.size(), expected_tensors);
  EXPECT_EQ(opened.manifest->quantisation, base::Json({{"optimizer", codec.traits().name}}));
}

}  // namespace cairn::test
