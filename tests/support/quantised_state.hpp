// Checks of the files of a quantised save.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "environment.hpp"
#include "moment_state.hpp"
#include "opening/open.hpp"
#include "quant/codec.hpp"

namespace cairn::test {

/// The bytes of a stored tensor, read directly from its file.
inline std::vector<std::byte> stored_bytes(const opening::OpenCheckpoint& opened, const std::string& section,
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

/// Takes the root of all v, with the updates unchanged: log(v) then has sigma 1, as Paddle's codecs want it.
inline void calm(MomentRank& state) {
  for (std::size_t i = 0; i + 1 < state.tensors().size(); ++i) {
    if (!state.tensors()[i].name.ends_with("/moment1_0")) continue;
    for (std::size_t at = 0; at < state.memory(i).size(); at += sizeof(float)) {
      float m = 0;
      float v = 0;
      std::memcpy(&m, &state.memory(i)[at], sizeof m);
      std::memcpy(&v, &state.memory(i + 1)[at], sizeof v);
      const float root = std::sqrt(v);
      m *= std::sqrt(root / v);
      std::memcpy(&state.memory(i)[at], &m, sizeof m);
      std::memcpy(&state.memory(i + 1)[at], &root, sizeof root);
    }
  }
}

/// Gives a rank's part of `square` moments, of which the second ones span 120 octaves in every block,
/// more than any codec with few bits can hold.
inline void spoil_square(MomentRank& state, int rank) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank));
  std::vector<float> roots;
  for (const char* name : {"square/moment2_0", "square/moment1_0"}) {
    for (std::size_t i = 0; i < state.tensors().size(); ++i) {
      if (state.tensors()[i].name != name) continue;
      std::vector<std::byte>& memory = state.memory(i);
      roots.resize(memory.size() / sizeof(float));
      for (std::size_t e = 0; e < roots.size(); ++e) {
        const bool is_second = name[13] == '2';
        if (is_second)
          roots[e] = std::exp2(static_cast<float>(std::uniform_real_distribution<double>(-73, -13)(random)));
        const float sign = e % 2 == 0 ? 1 : -0.7F;
        const float value = is_second ? roots[e] * roots[e] : sign * roots[e];
        std::memcpy(memory.data() + e * sizeof value, &value, sizeof value);
      }
    }
  }
}

/// Compares every stored tensor with the codes of the whole state.
inline void expect_codes_of_the_whole(const std::filesystem::path& directory, const quant::Codec& codec) {
  const opening::OpenCheckpoint opened = opening::open_here(directory);
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
