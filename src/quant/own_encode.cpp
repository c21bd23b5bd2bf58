// From 128 pairs to a scale word and codes.
//
// Encoding what was decoded gives the same word and codes. For that the pair that chose a scale must, once decoded, choose
// the same scale again: its level is held inside the step of the scale (Held). Values so far out that F32 cannot hold a
// level's value exactly enough (denormal v, v near the largest float) have no such margin: such a block is encoded, decoded and
// encoded until nothing changes.
#include <algorithm>
#include <bit>

#include "quant/own_block.hpp"
#include "quant/own_clones.hpp"
#include "quant/own_math.hpp"

namespace cairn::quant::own {
namespace {

constexpr std::uint32_t kPositive = 0x7fffffffU;
constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();
constexpr int kRounds = 8;

/// u, log v, and what the scales follow from.
struct Measured {
  alignas(64) std::array<float, kBlockElements> u;
  alignas(64) std::array<std::int32_t, kBlockElements> log;  ///< without meaning where v is 0
  std::int32_t largest_u = 0;  ///< bits of the largest |u|: ordered as the numbers are, NaN above all
  std::int32_t log_min = kNone;
  std::int32_t log_max = -kNone;
  std::uint32_t largest_v = 0;  ///< bits: negative numbers and NaN above all others
  bool has_zeros = false;
};

/// Levels that the pairs which chose the scales may not leave.
struct Held {
  std::int32_t u_least = 0;  ///< |level| of the largest |u|
  std::int32_t v_most = 0;   ///< level of the lowest v
  std::int32_t v_least = 0;  ///< level of the highest v
};

CAIRN_QUANT_CLONES void measure(const Values& values, Measured& out) {
  std::int32_t largest_u = 0;
  std::int32_t log_min = kNone;
  std::int32_t log_max = -kNone;
  std::uint32_t largest_v = 0;
  std::uint32_t least_v = ~0U;
  for (std::size_t i = 0; i < kBlockElements; ++i) {
    const float v = values.v[i] + 0.0f;  // -0 becomes 0
    const std::uint32_t v_bits = std::bit_cast<std::uint32_t>(v);
    const float root = std::sqrt(v);
    const float u = values.m[i] / (v_bits == 0 ? kZeroReference : root);
    const std::int32_t log = log2_of(v);
    out.u[i] = u;
    out.log[i] = log;
    largest_u = larger(largest_u, static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(u) & kPositive));
    largest_v = larger(largest_v, v_bits);
    least_v = smaller(least_v, v_bits);
    const std::int32_t no_log = v_bits == 0 ? -1 : 0;  // a mask: GCC 12 makes no vector code of a choice here
    log_min = smaller(log_min, (log & ~no_log) | (kNone & no_log));
    log_max = larger(log_max, (log & ~no_log) | (-kNone & no_log));
  }
  out.largest_u = largest_u;
  out.log_min = log_min;
  out.log_max = log_max;
  out.largest_v = largest_v;
  out.has_zeros = least_v == 0;
}

/// The step of u's scale that is not below the largest |u| by more than 8 units in the last place; not limited.
std::int32_t u_code(std::int32_t bits) {
  const std::uint32_t step = (static_cast<std::uint32_t>(bits) + ((1U << 18) - 1 - 8)) >> 18;
  return std::max(static_cast<std::int32_t>(step) - static_cast<std::int32_t>(kUScaleBase), 0);
}

/// The shortest range that reaches `length`.
std::uint32_t range_code(std::int32_t length) {
  const std::int32_t units = (std::max(length - kSlack, 0) + kRangeUnit - 1) / kRangeUnit;
  std::uint32_t octave = 0;
  const auto rounded_up = [&] { return (units + (1 << octave) - 1) >> octave; };
  while (rounded_up() > 127) ++octave;
  return octave * 64 + static_cast<std::uint32_t>(std::max(rounded_up() - 64, 0));
}

Scales choose_scales(const Measured& measured) {
  Scales scales;
  scales.u = static_cast<std::uint32_t>(u_code(measured.largest_u));
  scales.has_zeros = measured.has_zeros;
  if (measured.log_min == kNone) return scales;
  const std::int32_t low = (measured.log_min + kSlack + 149 * kOctave) >> 17;
  scales.low = static_cast<std::uint32_t>(std::clamp(low, 0, static_cast<std::int32_t>(kLowCodes) - 1));
  scales.range = range_code(measured.log_max - (static_cast<std::int32_t>(scales.low) * kLowStep - 149 * kOctave));
  return scales;
}

/// The place among v's levels, from 0 to v_steps, of `length` above the lowest.
float place_of(const Grid& grid, std::int32_t length) {
  const float value = static_cast<float>(length) * (2.0f / static_cast<float>(grid.range)) - 1.0f;
  return (squeeze_v(value) + 1.0f) * (0.5f * static_cast<float>(grid.v_steps));
}

Held hold(const Grid& grid, const Scales& scales) {
  constexpr float kMargin = 0x1p-7f;  // of a level
  Held held = {0, grid.v_steps, 0};
  if (scales.u != 0) {
    const float below = std::bit_cast<float>((kUScaleBase + scales.u - 1) << 18);
    const float place = squeeze_u(below / grid.u_scale) * static_cast<float>(grid.u_half);
    held.u_least = std::min(static_cast<std::int32_t>(place + kMargin) + 1, grid.u_half);
  }
  if (scales.low != kLowCodes - 1) {
    held.v_most = static_cast<std::int32_t>(std::max(place_of(grid, kLowStep - 2 * kSlack) - kMargin, 0.0f));
  }
  if (scales.range != 0) {
    const float place = place_of(grid, range_of(scales.range - 1) + 2 * kSlack);
    held.v_least = std::min(static_cast<std::int32_t>(place + kMargin) + 1, grid.v_steps);
  }
  return held;
}

CAIRN_QUANT_CLONES void choose_codes(const Values& values, const Measured& measured, const Grid& grid, const Held& held,
                                     std::array<std::uint32_t, kBlockElements>& codes) {
  const Grid g = grid;
  const Held h = held;
  const std::int32_t largest_u = measured.largest_u;
  const std::int32_t log_min = measured.log_min;
  const std::int32_t log_max = measured.log_max;
  const float u_inverse = g.u_scale == 0.0f ? 0.0f : 1.0f / g.u_scale;
  const float u_half = static_cast<float>(g.u_half);
  const float per_range = 2.0f / static_cast<float>(g.range);
  const float v_half = 0.5f * static_cast<float>(g.v_steps);
  for (std::size_t i = 0; i < kBlockElements; ++i) {
    const std::uint32_t u_bits = std::bit_cast<std::uint32_t>(measured.u[i]);
    const float x = smaller(std::bit_cast<float>(u_bits & kPositive) * u_inverse, 1.0f);
    const std::int32_t u_nearest = static_cast<std::int32_t>(squeeze_u(x) * u_half + 0.5f);
    const bool is_largest = static_cast<std::int32_t>(u_bits & kPositive) == largest_u;
    const std::int32_t u_level = larger(u_nearest, is_largest ? h.u_least : 0);
    const std::int32_t u_code = u_bits > kPositive ? g.u_half - u_level : g.u_half + u_level;

    const std::int32_t log = measured.log[i];
    const float y = smaller(larger(static_cast<float>(log - g.low) * per_range - 1.0f, -1.0f), 1.0f);
    const std::int32_t v_nearest = static_cast<std::int32_t>((squeeze_v(y) + 1.0f) * v_half + 0.5f);
    const std::int32_t v_raised = larger(v_nearest, log == log_max ? h.v_least : 0);
    const std::int32_t v_level = smaller(v_raised, log == log_min ? h.v_most : g.v_steps);
    const std::int32_t v_code = values.v[i] == 0.0f ? 0 : v_level + g.zero;
    codes[i] = static_cast<std::uint32_t>(u_code * g.v_levels + v_code);
  }
}

/// One encoding. False when a value is refused.
bool encode_once(const Format& format, const Values& values, Block& block) {
  Measured measured;
  measure(values, measured);
  if (measured.largest_v > 0x7f7fffffU || u_code(measured.largest_u) >= static_cast<std::int32_t>(kUScaleCodes))
    return false;
  const Scales scales = choose_scales(measured);
  block.word = word_of(scales);
  const Grid grid = grid_of(format, block.word);
  choose_codes(values, measured, grid, hold(grid, scales), block.codes);
  return true;
}

/// True when a level of v may lie where F32 has too few digits, or none.
bool is_extreme(const Format& format, const Block& block) {
  const Grid grid = grid_of(format, block.word);
  return grid.low < -126 * kOctave || grid.low + grid.range >= 128 * kOctave;
}

}  // namespace

bool is_refused(float m, float v) {
  const float u = m / (v == 0.0f ? kZeroReference : std::sqrt(v));
  const auto u_bits = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(u) & kPositive);
  return std::bit_cast<std::uint32_t>(v + 0.0f) > 0x7f7fffffU ||
         u_code(u_bits) >= static_cast<std::int32_t>(kUScaleCodes);
}

bool encode_block(const Format& format, const Values& values, Block& block) {
  if (!encode_once(format, values, block)) return false;
  const bool has_v = std::any_of(values.v.begin(), values.v.end(), [](float v) { return v != 0.0f; });
  if (!has_v || !is_extreme(format, block)) return true;
  for (int round = 0; round < kRounds; ++round) {
    Values decoded;
    Block again;
    if (!decode_block(format, block, decoded) || !encode_once(format, decoded, again)) break;
    if (again == block) return true;
    block = again;
  }
  // No such block is known. This one is certain to be stable, since no level of it is extreme.
  Values moved = values;
  for (float& v : moved.v) v = v == 0.0f ? v : std::clamp(v, 0x1p-126f, 0x1p120f);
  return encode_once(format, moved, block);
}

}  // namespace cairn::quant::own
