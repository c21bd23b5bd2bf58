// The scale word: its meaning, and how it is chosen. The word has the few numbers that all pairs of a block share.
//
// Grid follows from word and format. A block's pairs give its Extremes, from which choose_scales() makes the word.
// Encoding decoded values gives the same word and codes. For this, the pair that determined a scale must, once decoded,
// determine the same scale again, so its level is kept inside the scale's step (Held). One source for processors and
// GPUs. Only sources of this layer may include this header.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

#include "base/host_device.hpp"
#include "quant/own_math.hpp"

namespace cairn::quant::own {

// The scale word of a block of q8 and q4, and the levels that follow from it.
//
// A word has the block's largest |u|, the lowest log v, the length of the range of log v, and a bit that is set if a
// level is reserved for v = 0. All 2^32 words are valid and give finite values. The length of the range alone decides
// how a pair's codes are divided between u and v (levels_of), so the division is not stored.

inline constexpr std::uint32_t kUScaleCodes = 1U << 11;
inline constexpr std::uint32_t kLowCodes = 1U << 11;
inline constexpr std::uint32_t kRangeCodes = 1U << 9;

struct Scales {
  std::uint32_t u = 0;      ///< 0: every decoded m is 0; otherwise the largest |u| is the float with the bits
                            ///< (kUScaleBase + u) << 18
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

/// The bits of 2^-24, shifted right by 18. Scales of u lie between 2^-24 and 2^40, in 32 steps per octave.
inline constexpr std::uint32_t kUScaleBase = (127 - 24) * 32;

/// The unit of the range (1.125 / 64 octave) and the step of `low` (1/8 octave), in units of 2^-20 octave.
inline constexpr std::int32_t kRangeUnit = 18432;
inline constexpr std::int32_t kLowStep = 1 << 17;

/// Length of the range of log2(v), in units of 2^-20 octave.
CAIRN_HOST_DEVICE constexpr std::int32_t range_of(std::uint32_t range) {
  return static_cast<std::int32_t>(64 + range % 64) * kRangeUnit << range / 64;
}

/// A pair's code is u's level times `v`, plus v's level.
struct Levels {
  std::uint16_t u = 0;  ///< number of levels, odd so that the middle level is 0
  std::uint16_t v = 0;  ///< number of levels, including the level for v = 0, if any
};

constexpr std::uint64_t integer_sqrt(std::uint64_t n) {
  std::uint64_t root = 0;
  for (std::uint64_t bit = std::uint64_t{1} << 31; bit != 0; bit >>= 1) {
    if ((root + bit) * (root + bit) <= n) root += bit;
  }
  return root;
}

/// Divides `codes` between u and v so that the errors of u and of log v, each relative to its target, are about equal
/// for Gaussian u: the number of v's levels is about the square root of codes * 0.054 * range in octaves.
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

/// If v is 0, u is m divided by this number: 2^-27, in place of Adam's epsilon, 1e-8.
inline constexpr float kZeroReference = 0x1p-27f;

inline constexpr std::uint32_t kPositive = 0x7fffffffU;
inline constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();

/// The meaning of a block's codes; a function of the block's word and the format.
struct Grid {
  float u_scale = 0;        ///< the largest |u|, or 0
  std::int32_t u_half = 0;  ///< u's levels are -u_half .. u_half
  std::int32_t low = 0;     ///< lowest log2(v), in 2^-20 octaves
  std::int32_t range = 0;
  std::int32_t v_levels = 0;  ///< number of levels of v, including the level for 0
  std::int32_t v_steps = 0;   ///< steps between the lowest and the highest level of v > 0
  std::int32_t zero = 0;      ///< 1 if v's code 0 stands for v = 0
};

CAIRN_HOST_DEVICE constexpr std::int32_t low_of(std::int32_t code) { return code * kLowStep - 149 * kOctave; }

/// `levels`: the format's levels for the range of `scales`.
CAIRN_HOST_DEVICE inline Grid grid_of(const Scales& scales, const Levels& levels) {
  Grid grid;
  grid.u_scale = scales.u == 0 ? 0.0f : std::bit_cast<float>((kUScaleBase + scales.u) << 18);
  grid.u_half = levels.u / 2;
  grid.low = low_of(static_cast<std::int32_t>(scales.low));
  grid.range = range_of(scales.range);
  grid.v_levels = levels.v;
  grid.zero = scales.has_zeros ? 1 : 0;
  grid.v_steps = levels.v - 1 - grid.zero;
  return grid;
}

/// Whether levels of v can lie where F32 has too few digits, or above its largest number.
CAIRN_HOST_DEVICE inline bool is_extreme(const Grid& grid) {
  return grid.low < -126 * kOctave || grid.low + grid.range >= 128 * kOctave;
}

/// The values of a block that determine its scales.
struct Extremes {
  std::int32_t largest_u = 0;  ///< bits of the largest |u|; bits are ordered like the numbers, with NaN above all
  std::int32_t log_min = kNone;
  std::int32_t log_max = -kNone;
  std::uint32_t largest_v = 0;  ///< bits of the largest v; negative numbers and NaN are above all others
  std::uint32_t least_v = ~0U;  ///< bits of the smallest v
};

/// The code of u's lowest scale that reaches the largest |u|, or lies below it by at most 8 units in the last place.
/// `bits`: the largest |u|. The result can exceed the existing codes.
CAIRN_HOST_DEVICE inline std::int32_t u_code(std::int32_t bits) {
  const std::uint32_t step = (static_cast<std::uint32_t>(bits) + ((1U << 18) - 1 - 8)) >> 18;
  return larger(static_cast<std::int32_t>(step) - static_cast<std::int32_t>(kUScaleBase), 0);
}

/// Whether a block has a pair that cannot be coded. Arguments: Extremes::largest_u and largest_v.
CAIRN_HOST_DEVICE inline bool any_refused(std::int32_t largest_u, std::uint32_t largest_v) {
  return largest_v > 0x7f7fffffU || u_code(largest_u) >= static_cast<std::int32_t>(kUScaleCodes);
}

/// The code of the shortest range that reaches `length` - kSlack.
CAIRN_HOST_DEVICE inline std::uint32_t range_code(std::int32_t length) {
  const std::int32_t units = (larger(length - kSlack, 0) + kRangeUnit - 1) / kRangeUnit;
  std::uint32_t octave = 0;
  while (((units + (1 << octave) - 1) >> octave) > 127) ++octave;
  const std::int32_t rounded_up = (units + (1 << octave) - 1) >> octave;
  return octave * 64 + static_cast<std::uint32_t>(larger(rounded_up - 64, 0));
}

/// The code of the highest `low` that is not above `log_min` + kSlack.
CAIRN_HOST_DEVICE inline std::int32_t low_code(std::int32_t log_min) {
  const std::int32_t low = (log_min + kSlack + 149 * kOctave) >> 17;
  return smaller(larger(low, 0), static_cast<std::int32_t>(kLowCodes) - 1);
}

CAIRN_HOST_DEVICE inline Scales choose_scales(const Extremes& extremes) {
  Scales scales;
  scales.u = static_cast<std::uint32_t>(u_code(extremes.largest_u));
  scales.has_zeros = extremes.least_v == 0;
  if (extremes.log_min == kNone) return scales;
  const std::int32_t low = low_code(extremes.log_min);
  scales.low = static_cast<std::uint32_t>(low);
  scales.range = range_code(extremes.log_max - low_of(low));
  return scales;
}

/// Limits for the levels of those pairs that determined the scales.
struct Held {
  std::int32_t u_least = 0;  ///< least |level| for the largest |u|
  std::int32_t v_most = 0;   ///< highest level for the lowest v
  std::int32_t v_least = 0;  ///< lowest level for the highest v
};

/// The place (0 to v_steps) of a log v among v's levels; `length` is its distance from the lowest log v.
CAIRN_HOST_DEVICE inline float place_of(const Grid& grid, std::int32_t length) {
  const float value = static_cast<float>(length) * exact::twice_reciprocal(static_cast<float>(grid.range)) - 1.0f;
  return (squeeze_v(value) + 1.0f) * (0.5f * static_cast<float>(grid.v_steps));
}

CAIRN_HOST_DEVICE inline Held hold(const Grid& grid, const Scales& scales) {
  constexpr float kMargin = 0x1p-7f;  // in levels
  Held held = {0, grid.v_steps, 0};
  if (scales.u != 0) {
    const float below = std::bit_cast<float>((kUScaleBase + scales.u - 1) << 18);
    const float place = squeeze_u(exact::quotient(below, grid.u_scale)) * static_cast<float>(grid.u_half);
    held.u_least = smaller(static_cast<std::int32_t>(place + kMargin) + 1, grid.u_half);
  }
  if (scales.low != kLowCodes - 1) {
    held.v_most = static_cast<std::int32_t>(larger(place_of(grid, kLowStep - 2 * kSlack) - kMargin, 0.0f));
  }
  if (scales.range != 0) {
    const float place = place_of(grid, range_of(scales.range - 1) + 2 * kSlack);
    held.v_least = smaller(static_cast<std::int32_t>(place + kMargin) + 1, grid.v_steps);
  }
  return held;
}

/// Changes to the v of an extreme block before it is coded. They are tried in this order until decoding the block and
/// coding it again gives the same block (own_block.cpp). Every try begins with the original v, so that errors do not
/// add up, and leaves the largest v as it is or lowers it.
enum Try : int {
  kAsGiven,
  kLowestHeld,    ///< the lowest v is moved down, by less than an octave, to a lowest level that F32 can hold
  kLowestBinary,  ///< the lowest v is moved down to a power of two
  kFlattened,     ///< always settles, because no level is extreme, or all v are the same
  kTries,
};

/// Largest number of rounds of decoding and coding in one try.
inline constexpr int kSettlingRounds = 8;

/// `v`, whose logarithm is `log`, as a try changes it. Requires v > 0. `extremes`: extremes of the original values.
CAIRN_HOST_DEVICE inline float moved(float v, std::int32_t log, const Extremes& extremes, int attempt) {
  if (attempt == kFlattened) {
    const std::int32_t highest = smaller(extremes.log_max >> kLogBits, 120);
    const std::int32_t lowest = smaller(highest, -126);
    return smaller(larger(v, exp2_of(lowest * kOctave)), exp2_of((lowest < -126 ? lowest : 120) * kOctave));
  }
  std::int32_t code = low_code(extremes.log_min);
  if (attempt == kLowestBinary) code &= ~7;
  while (low_code(log2_of(exp2_of(low_of(code)))) != code) --code;  // ends at 2^-149
  const float lowest = exp2_of(low_of(code));
  return attempt == kAsGiven || log > larger(extremes.log_min, log2_of(lowest)) ? v : lowest;
}

}  // namespace cairn::quant::own
