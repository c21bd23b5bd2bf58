// One pair (m, v) of a block of q8 or q4: its measurement, coding and decoding, and the packing of its code.
//
// The loops over a block are in own_block.cpp for processors and in own_lanes.hpp for GPUs; their arithmetic is here.
// Measuring, coding and decoding have no branches, so that loops over pairs become vector code. Only sources of this
// layer may include this header.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/host_device.hpp"
#include "quant/own_grid.hpp"
#include "quant/own_math.hpp"

namespace cairn::quant::own {

struct MeasuredPair {
  float u = 0;
  std::int32_t log = 0;  ///< log2(v) as log2_of() gives it; meaningless if v is 0
  std::uint32_t v_bits = 0;
};

CAIRN_HOST_DEVICE inline MeasuredPair measure_pair(float m, float v) {
  v = v + 0.0f;  // -0 becomes 0
  const std::uint32_t v_bits = std::bit_cast<std::uint32_t>(v);
#ifdef __CUDA_ARCH__
  // If |u| lies in [2^-60, 2^100], it has the same bits as from the division below. A larger |u| is refused, and a
  // smaller one gets level 0, because every scale of u is 0 or lies between 2^-24 and 2^40.
  const float u = exact::scaled_ratio(m, v, kZeroReference);
#else
  const float root = std::sqrt(v);
  const float u = m / (v_bits == 0 ? kZeroReference : root);
#endif
  return {u, log2_of(v), v_bits};
}

CAIRN_HOST_DEVICE inline std::int32_t magnitude_bits(float u) {
  return static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(u) & kPositive);
}

CAIRN_HOST_DEVICE inline void take(Extremes& extremes, const MeasuredPair& pair) {
  extremes.largest_u = larger(extremes.largest_u, magnitude_bits(pair.u));
  extremes.largest_v = larger(extremes.largest_v, pair.v_bits);
  extremes.least_v = smaller(extremes.least_v, pair.v_bits);
  const std::int32_t no_log = pair.v_bits == 0 ? -1 : 0;  // a mask, because GCC 12 does not vectorise a conditional
                                                          // here
  extremes.log_min = smaller(extremes.log_min, (pair.log & ~no_log) | (kNone & no_log));
  extremes.log_max = larger(extremes.log_max, (pair.log & ~no_log) | (-kNone & no_log));
}

/// Codes measured pairs.
struct PairCoder {
  CAIRN_HOST_DEVICE PairCoder(const Grid& block_grid, const Held& block_held, const Extremes& extremes)
      : grid(block_grid),
        held(block_held),
        largest_u(extremes.largest_u),
        log_min(extremes.log_min),
        log_max(extremes.log_max),
        u_inverse(grid.u_scale == 0.0f ? 0.0f : exact::reciprocal(grid.u_scale)),
        u_half(static_cast<float>(grid.u_half)),
        per_range(exact::twice_reciprocal(static_cast<float>(grid.range))),
        v_half(0.5f * static_cast<float>(grid.v_steps)) {}

  [[nodiscard]] CAIRN_HOST_DEVICE std::uint32_t code(float u, std::int32_t log, bool v_is_zero) const {
    const std::uint32_t u_bits = std::bit_cast<std::uint32_t>(u);
    const float x = smaller(std::bit_cast<float>(u_bits & kPositive) * u_inverse, 1.0f);
    const std::int32_t u_nearest = static_cast<std::int32_t>(squeeze_u(x) * u_half + 0.5f);
    const bool is_largest = static_cast<std::int32_t>(u_bits & kPositive) == largest_u;
    const std::int32_t u_level = larger(u_nearest, is_largest ? held.u_least : 0);
    // Unsigned, because a refused pair can have any level; its code is not used.
    const auto u_middle = static_cast<std::uint32_t>(grid.u_half);
    const auto u_steps = static_cast<std::uint32_t>(u_level);
    const std::uint32_t u_code = u_bits > kPositive ? u_middle - u_steps : u_middle + u_steps;

    // Subtracted as unsigned numbers, because `log` can be any number if v is 0.
    const auto above =
        static_cast<std::int32_t>(static_cast<std::uint32_t>(log) - static_cast<std::uint32_t>(grid.low));
    const float y = smaller(larger(static_cast<float>(above) * per_range - 1.0f, -1.0f), 1.0f);
    const std::int32_t v_nearest = static_cast<std::int32_t>((squeeze_v(y) + 1.0f) * v_half + 0.5f);
    const std::int32_t v_raised = larger(v_nearest, log == log_max ? held.v_least : 0);
    const std::int32_t v_level = smaller(v_raised, log == log_min ? held.v_most : grid.v_steps);
    const std::uint32_t v_code =
        v_is_zero ? 0 : static_cast<std::uint32_t>(v_level) + static_cast<std::uint32_t>(grid.zero);
    return u_code * static_cast<std::uint32_t>(grid.v_levels) + v_code;
  }

  Grid grid;
  Held held;
  std::int32_t largest_u;
  std::int32_t log_min;
  std::int32_t log_max;
  float u_inverse;
  float u_half;
  float per_range;
  float v_half;
};

struct Pair {
  float m = 0;
  float v = 0;
};

/// Decodes codes to pairs. Only codes below codes() are in use; the pairs of other codes have no meaning.
struct PairDecoder {
  CAIRN_HOST_DEVICE explicit PairDecoder(const Grid& block_grid)
      : grid(block_grid),
        per_v_levels(exact::reciprocal(static_cast<float>(grid.v_levels))),
        per_u_half(exact::reciprocal(static_cast<float>(grid.u_half))),
        per_v_steps(exact::reciprocal(static_cast<float>(grid.v_steps))),
        half_range(0.5f * static_cast<float>(grid.range)) {}

  [[nodiscard]] std::int32_t codes() const { return (2 * grid.u_half + 1) * grid.v_levels; }

  [[nodiscard]] CAIRN_HOST_DEVICE Pair pair(std::int32_t code) const {
    // Integer division in F32: the added half keeps the product at least 0.5 / v_levels away from every integer, far
    // more than its rounding error, so truncation gives the exact quotient.
    const auto u_code = static_cast<std::int32_t>((static_cast<float>(code) + 0.5f) * per_v_levels);
    const std::int32_t v_code = code - u_code * grid.v_levels;

    const float v_place = static_cast<float>(2 * (v_code - grid.zero) - grid.v_steps) * per_v_steps;
    const float y = larger(spread_v(larger(v_place, -1.0f)), -1.0f);
    const float level = exp2_of(grid.low + static_cast<std::int32_t>((y + 1.0f) * half_range + 0.5f));
    const float v = v_code < grid.zero ? 0.0f : level;

    const float u = spread_u(static_cast<float>(u_code - grid.u_half) * per_u_half) * grid.u_scale;
    return {u * (v == 0.0f ? kZeroReference : exact::any_root(v)), v};
  }

  Grid grid;
  float per_v_levels;
  float per_u_half;
  float per_v_steps;
  float half_range;
};

// Packing: the codes of four neighbouring pairs become the bits of one lane. README.md, "Stored bytes", has the format.
//
// A block has 32 lanes of four pairs. A lane's highest bits, which do not fit its word, are stored in the planes: bit j
// of each plane belongs to lane j. One source for processors (own_block.cpp) and GPUs (own_lanes.hpp).

inline constexpr std::size_t kLanes = 32;
inline constexpr std::size_t kPairs = 4;  ///< pairs in a lane

/// A code is h * 2^kLowBits + l with h < kHighs. A lane is a number. Its lowest bits are the l of its four pairs,
/// kLowBits bits each, the first pair lowest; above them, the joint number h0 + kHighs h1 + kHighs^2 h2 + kHighs^3 h3.
/// The number's lowest kLaneBytes bytes are stored together, the kPlanes bits above them in the planes.
template <unsigned kLowBits, std::uint32_t kHighs, std::size_t kBytes, std::size_t kPlaneCount>
struct Packing {
  using Word = std::conditional_t<kBytes == 8, std::uint64_t, std::uint32_t>;

  static constexpr std::size_t kLaneBytes = kBytes;
  static constexpr std::size_t kPlanes = kPlaneCount;
  static constexpr std::uint32_t kCodes = kHighs << kLowBits;
  static constexpr std::uint32_t kJoints = kHighs * kHighs * kHighs * kHighs;
  static constexpr unsigned kJointAt = kPairs * kLowBits;
  static constexpr unsigned kJointInLane = 8 * kLaneBytes - kJointAt;  ///< bits of the joint number outside the planes
  static constexpr std::size_t kLanesAt = 4 + 4 * kPlanes;
  static constexpr std::size_t kBlockBytes = kLanesAt + kLanes * kLaneBytes;
  static_assert(sizeof(Word) == kLaneBytes);
  static_assert(std::uint64_t{kJoints} <= std::uint64_t{1} << (kJointInLane + kPlanes));

  struct Lane {
    Word word = 0;                ///< the bytes that are stored together
    std::uint32_t in_planes = 0;  ///< bit p is stored in plane p
  };

  CAIRN_HOST_DEVICE static Lane join(const std::uint32_t* code) {
    Word number = 0;
    std::uint32_t joint = 0;
    for (int p = kPairs - 1; p >= 0; --p) {
      number = number << kLowBits | (code[p] & ((1U << kLowBits) - 1));
      joint = joint * kHighs + (code[p] >> kLowBits);
    }
    return {number | Word{joint} << kJointAt, joint >> kJointInLane};
  }

  /// Splits a lane into its four codes; false for bits that join() never makes.
  static bool split(const Lane& lane, std::uint32_t* code) {
    Word number = lane.word;
    auto joint = static_cast<std::uint32_t>(number >> kJointAt) | lane.in_planes << kJointInLane;
    const bool is_right = joint < kJoints;
    for (std::size_t p = 0; p < kPairs; ++p) {
      code[p] = static_cast<std::uint32_t>(number & ((1U << kLowBits) - 1)) | joint % kHighs << kLowBits;
      number >>= kLowBits;
      joint /= kHighs;
    }
    return is_right;
  }
};

using PackingQ8 = Packing<11, 53, 8, 3>;
using PackingQ4 = Packing<5, 19, 4, 5>;

}  // namespace cairn::quant::own
