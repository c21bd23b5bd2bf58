// From 128 pairs to a scale word and codes.
//
// Values so far out that F32 cannot hold a level's value exactly enough (denormal v, v near the largest float) leave the
// pairs that chose the scales no margin (Held): the lowest v, rounded to the digits that F32 has there, may choose another
// scale. Such a block is coded until what was decoded is coded as it was, with its lowest v moved to where F32 holds it
// when need be (Try). What settles is always made of the values that were given, with scales of theirs: rounds that went
// from one choice of scales to the next would widen the range each time, and raise the largest v.
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
bool encode_once(const Format& format, const Values& values, Block& block, Extremes& extremes) {
  Measured measured;
  measure(values, measured);
  extremes = measured.extremes;
  if (any_refused(extremes.largest_u, extremes.largest_v)) return false;
  const Scales scales = choose_scales(extremes);
  block.word = word_of(scales);
  const Grid grid = grid_of(scales, format.levels[scales.range]);
  choose_codes(values, measured, PairCoder(grid, hold(grid, scales), extremes), block.codes);
  return true;
}

/// Codes what was decoded until nothing changes. False when the scales change: then what was coded is not what it was made of.
bool settle_levels(const Format& format, Block& block) {
  for (int round = 0; round < kSettlingRounds; ++round) {
    Values decoded;
    Block again;
    Extremes extremes;
    if (!decode_block(format, block, decoded) || !encode_once(format, decoded, again, extremes)) return false;
    if (again == block) return true;
    if (again.word != block.word) return false;
    block = again;
  }
  return false;
}

}  // namespace

bool is_refused(float m, float v) {
  const MeasuredPair pair = measure_pair(m, v);
  return any_refused(magnitude_bits(pair.u), pair.v_bits);
}

bool encode_block(const Format& format, const Values& values, Block& block) {
  Extremes extremes;
  if (!encode_once(format, values, block, extremes)) return false;
  if (extremes.log_min == kNone || !is_extreme(grid_of(format, block.word))) return true;
  if (settle_levels(format, block)) return true;
  bool is_coded = true;
  for (int attempt = kLowestHeld; attempt < kTries; ++attempt) {
    Values tried = values;
    for (float& v : tried.v) v = v == 0.0f ? v : moved(v, log2_of(v), extremes, attempt);
    Extremes unused;
    is_coded = encode_once(format, tried, block, unused);
    if (is_coded && settle_levels(format, block)) return true;
  }
  return is_coded;
}

}  // namespace cairn::quant::own
