// The scale word of a block of q8 and q4, and the levels that follow from it.
//
// A word says: the largest |u| of the block, the lowest log v, the length of the range of log v, and whether a level is set
// aside for v = 0. Every one of the 2^32 words means something finite. How many of a pair's codes go to v and how many to u
// depends on the range of v alone (levels_of), so it need not be stored.
#pragma once

#include <array>
#include <cstdint>

#include "base/host_device.hpp"

namespace cairn::quant::own {

inline constexpr std::uint32_t kUScaleCodes = 1U << 11;
inline constexpr std::uint32_t kLowCodes = 1U << 11;
inline constexpr std::uint32_t kRangeCodes = 1U << 9;

struct Scales {
  std::uint32_t u = 0;  ///< 0: every m is 0; otherwise the largest |u| is the float of the bits (kUScaleBase + u) << 18
  std::uint32_t low = 0;    ///< lowest log2(v) = low / 8 - 149
  std::uint32_t range = 0;  ///< length of the range of log2(v) = 1.125 / 64 * (64 + range % 64) * 2^(range / 64)
  bool has_zeros = false;   ///< v's code 0 stands for v = 0
};

CAIRN_HOST_DEVICE constexpr std::uint32_t word_of(const Scales& scales) {
  return scales.u | scales.low << 11 | scales.range << 22 | (scales.has_zeros ? 1U << 31 : 0U);
}

CAIRN_HOST_DEVICE constexpr Scales scales_of(std::uint32_t word) {
  return {word & (kUScaleCodes - 1), word >> 11 & (kLowCodes - 1), word >> 22 & (kRangeCodes - 1), (word >> 31) != 0};
}

/// Bits of 2^-24, shifted: the scale of u runs from there to 2^40 in 32 steps an octave.
inline constexpr std::uint32_t kUScaleBase = (127 - 24) * 32;

/// In units of 2^-20 octave: the range's unit (1.125 / 64 octave) and the step of `low` (1/8 octave).
inline constexpr std::int32_t kRangeUnit = 18432;
inline constexpr std::int32_t kLowStep = 1 << 17;

/// Length of the range of log2(v), in units of 2^-20 octave.
CAIRN_HOST_DEVICE constexpr std::int32_t range_of(std::uint32_t range) {
  return static_cast<std::int32_t>(64 + range % 64) * kRangeUnit << range / 64;
}

/// A pair's code is u's level times `v`, plus v's level.
struct Levels {
  std::uint16_t u = 0;  ///< odd, so that the one in the middle is 0
  std::uint16_t v = 0;  ///< with the one for v = 0, if there is one
};

constexpr std::uint64_t integer_sqrt(std::uint64_t n) {
  std::uint64_t root = 0;
  for (std::uint64_t bit = std::uint64_t{1} << 31; bit != 0; bit >>= 1) {
    if ((root + bit) * (root + bit) <= n) root += bit;
  }
  return root;
}

/// Shares `codes` so that the errors of u and of log v, each relative to what is asked of it, are about equal for Gaussian
/// u: v's levels grow with the root of its range (in octaves) times codes * 0.054.
constexpr Levels levels_of(std::uint32_t codes, std::uint32_t range) {
  const std::uint64_t wanted =
      std::uint64_t{codes} * 54 * static_cast<std::uint64_t>(range_of(range)) / (1000ULL << 20);
  const std::uint64_t u = codes / integer_sqrt(wanted);
  const std::uint64_t odd_u = u % 2 == 1 ? u : u - 1;
  return {static_cast<std::uint16_t>(odd_u), static_cast<std::uint16_t>(codes / odd_u)};
}

/// levels_of() for every range.
template <std::uint32_t kCodes>
inline constexpr auto kLevels = [] {
  std::array<Levels, kRangeCodes> levels{};
  for (std::uint32_t range = 0; range < kRangeCodes; ++range) levels[range] = levels_of(kCodes, range);
  return levels;
}();

}  // namespace cairn::quant::own
