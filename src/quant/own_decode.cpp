// From a scale word and codes to 128 pairs.
#include <bit>

#include "quant/own_block.hpp"
#include "quant/own_clones.hpp"
#include "quant/own_math.hpp"

namespace cairn::quant::own {
namespace {

/// False when a code is none of the block's.
CAIRN_QUANT_CLONES bool decode_values(const Block& block, const Grid& block_grid, Values& values) {
  const Grid grid = block_grid;
  const float per_v_levels = 1.0f / static_cast<float>(grid.v_levels);
  const float per_u_half = 1.0f / static_cast<float>(grid.u_half);
  const float per_v_steps = 1.0f / static_cast<float>(grid.v_steps);
  const float half_range = 0.5f * static_cast<float>(grid.range);
  const std::int32_t codes = (2 * grid.u_half + 1) * grid.v_levels;
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < kBlockElements; ++i) {
    const auto code = static_cast<std::int32_t>(block.codes[i]);
    largest = larger(largest, code);
    // The quotient by way of F32: at least half a step from where truncation would err, and the product is far more exact.
    const auto u_code = static_cast<std::int32_t>((static_cast<float>(code) + 0.5f) * per_v_levels);
    const std::int32_t v_code = code - u_code * grid.v_levels;

    const float v_place = static_cast<float>(2 * (v_code - grid.zero) - grid.v_steps) * per_v_steps;
    const float y = larger(spread_v(larger(v_place, -1.0f)), -1.0f);
    const float level = exp2_of(grid.low + static_cast<std::int32_t>((y + 1.0f) * half_range + 0.5f));
    const float v = v_code < grid.zero ? 0.0f : level;

    const float u = spread_u(static_cast<float>(u_code - grid.u_half) * per_u_half) * grid.u_scale;
    values.v[i] = v;
    values.m[i] = u * (v == 0.0f ? kZeroReference : std::sqrt(v));
  }
  return largest < codes;
}

}  // namespace

Grid grid_of(const Format& format, std::uint32_t word) {
  const Scales scales = scales_of(word);
  const Levels levels = format.levels[scales.range];
  Grid grid;
  grid.u_scale = scales.u == 0 ? 0.0f : std::bit_cast<float>((kUScaleBase + scales.u) << 18);
  grid.u_half = levels.u / 2;
  grid.low = static_cast<std::int32_t>(scales.low) * kLowStep - 149 * kOctave;
  grid.range = range_of(scales.range);
  grid.v_levels = levels.v;
  grid.zero = scales.has_zeros ? 1 : 0;
  grid.v_steps = levels.v - 1 - grid.zero;
  return grid;
}

bool decode_block(const Format& format, const Block& block, Values& values) {
  return decode_values(block, grid_of(format, block.word), values);
}

}  // namespace cairn::quant::own
