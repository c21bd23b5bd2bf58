// Expected result of a load that casts: the cast result of a plain load.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "quant/cast.hpp"
#include "shard/box_math.hpp"

namespace cairn::test {

inline std::span<const std::byte> bytes_of(const Shard& shard, const void* data) {
  std::uint64_t elements = 0;
  for (const Box& box : shard.boxes) elements += shard::elements_of(box);
  return {static_cast<const std::byte*>(data), elements * bits_of(shard.dtype) / 8};
}

/// Expects each target in `found` to have the converted values of the same target in `plain`. Returns the number of
/// bytes compared.
inline std::uint64_t expect_converted(const std::vector<Target>& plain, const std::vector<Target>& found) {
  std::uint64_t compared = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const auto bytes = bytes_of(found[i], found[i].data);
    std::vector<std::byte> expected(bytes.size());
    quant::cast_values(plain[i].dtype, bytes_of(plain[i], plain[i].data), found[i].dtype, expected);
    EXPECT_TRUE(std::ranges::equal(bytes, expected)) << plain[i].name << " as " << name_of(found[i].dtype);
    compared += bytes.size();
  }
  return compared;
}

}  // namespace cairn::test
