// From a scale word and codes to 128 pairs.
#include "quant/own_block.hpp"
#include "quant/own_clones.hpp"
#include "quant/own_pair.hpp"

namespace cairn::quant::own {
namespace {

/// False when a code is none of the block's.
CAIRN_QUANT_CLONES bool decode_values(const Block& block, const Grid& grid, Values& values) {
  const PairDecoder decoder(grid);
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < kBlockElements; ++i) {
    const auto code = static_cast<std::int32_t>(block.codes[i]);
    largest = larger(largest, code);
    const Pair pair = decoder.pair(code);
    values.m[i] = pair.m;
    values.v[i] = pair.v;
  }
  return largest < decoder.codes();
}

}  // namespace

Grid grid_of(const Format& format, std::uint32_t word) {
  const Scales scales = scales_of(word);
  return grid_of(scales, format.levels[scales.range]);
}

bool decode_block(const Format& format, const Block& block, Values& values) {
  return decode_values(block, grid_of(format, block.word), values);
}

}  // namespace cairn::quant::own
