// From 128 pairs to a scale word and codes.
//
// Values so far out that F32 cannot hold a level's value exactly enough (denormal v, v near the largest float) leave the
// pairs that chose the scales no margin (Held): such a block is encoded, decoded and encoded until nothing changes.
#include <algorithm>

#include "quant/own_block.hpp"
#include "quant/own_clones.hpp"
#include "quant/own_pair.hpp"

namespace cairn::quant::own {
namespace {

struct Measured {
  alignas(64) std::array<float, kBlockElements> u;
  alignas(64) std::array<std::int32_t, kBlockElements> log;  ///< without meaning where v is 0
  Extremes extremes;
};

CAIRN_QUANT_CLONES void measure(const Values& values, Measured& out) {
  Extremes extremes;
  for (std::size_t i = 0; i < kBlockElements; ++i) {
    const MeasuredPair pair = measure_pair(values.m[i], values.v[i]);
    out.u[i] = pair.u;
    out.log[i] = pair.log;
    take(extremes, pair);
  }
  out.extremes = extremes;
}

CAIRN_QUANT_CLONES void choose_codes(const Values& values, const Measured& measured, const PairCoder& block_coder,
                                     std::array<std::uint32_t, kBlockElements>& codes) {
  const PairCoder coder = block_coder;
  for (std::size_t i = 0; i < kBlockElements; ++i) {
    codes[i] = coder.code(measured.u[i], measured.log[i], values.v[i] == 0.0f);
  }
}

/// One encoding. False when a value is refused.
bool encode_once(const Format& format, const Values& values, Block& block) {
  Measured measured;
  measure(values, measured);
  if (any_refused(measured.extremes.largest_u, measured.extremes.largest_v)) return false;
  const Scales scales = choose_scales(measured.extremes);
  block.word = word_of(scales);
  const Grid grid = grid_of(scales, format.levels[scales.range]);
  choose_codes(values, measured, PairCoder(grid, hold(grid, scales), measured.extremes), block.codes);
  return true;
}

}  // namespace

bool is_refused(float m, float v) {
  const MeasuredPair pair = measure_pair(m, v);
  return any_refused(magnitude_bits(pair.u), pair.v_bits);
}

bool encode_block(const Format& format, const Values& values, Block& block) {
  if (!encode_once(format, values, block)) return false;
  const bool has_v = std::any_of(values.v.begin(), values.v.end(), [](float v) { return v != 0.0f; });
  if (!has_v || !is_extreme(grid_of(format, block.word))) return true;
  for (int round = 0; round < kExtremeRounds; ++round) {
    Values decoded;
    Block again;
    if (!decode_block(format, block, decoded) || !encode_once(format, decoded, again)) break;
    if (again == block) return true;
    block = again;
  }
  // No such block is known. This one is certain to be stable, since no level of it is extreme.
  Values moved = values;
  for (float& v : moved.v) v = moved_inside(v);
  return encode_once(format, moved, block);
}

}  // namespace cairn::quant::own
