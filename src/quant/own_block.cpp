// One block of q8 or q4: converts 128 pairs to a scale word and codes, converts word and codes to bytes, and back.
#include "quant/own_block.hpp"

#include "quant/own_math.hpp"
#include "quant/own_pair.hpp"

namespace cairn::quant::own {

// Encoding: 128 pairs become a scale word and codes.
//
// For extreme values (denormal v, v near the largest float) F32 cannot hold a level exactly enough, and the pairs that
// determined the scales have no margin (Held): the lowest v, rounded to the digits that F32 has there, can give a
// different scale. An extreme block is decoded and coded again until nothing changes, if necessary with
// changed v (Try). Each try starts from the given values and chooses scales once: if each round chose new scales, the
// range would widen each time and the largest v would rise.

namespace {

struct Measured {
  alignas(64) std::array<float, kBlockElements> u;
  alignas(64) std::array<std::int32_t, kBlockElements> log;  ///< no meaning where v is 0
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

/// Encodes once. False if a value is refused.
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

/// Decodes and codes the block until nothing changes. False if that takes too many rounds, or if the scales change,
/// since the block then no longer represents the original values.
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

// Decoding: a scale word and codes become 128 pairs.

namespace {

/// Decodes a block; false if one of its codes is not in use.
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

// A block's stored bytes: word, bit planes, lanes, all little-endian. README.md has the format.

namespace {

void put(std::uint32_t value, std::byte* at) {
  for (int i = 0; i < 4; ++i) at[i] = static_cast<std::byte>(value >> 8 * i & 0xff);
}

std::uint32_t get(const std::byte* at) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= std::to_integer<std::uint32_t>(at[i]) << 8 * i;
  return value;
}

template <class Packing>
void pack(const Block& block, std::byte* out) {
  std::array<std::uint32_t, Packing::kPlanes> planes{};
  for (std::size_t i = 0; i < kLanes; ++i) {
    const typename Packing::Lane lane = Packing::join(block.codes.data() + i * kPairs);
    for (std::size_t at = 0; at < Packing::kLaneBytes; at += 4) {
      put(static_cast<std::uint32_t>(lane.word >> 8 * at), out + Packing::kLanesAt + Packing::kLaneBytes * i + at);
    }
    for (std::size_t plane = 0; plane < Packing::kPlanes; ++plane) {
      planes[plane] |= (lane.in_planes >> plane & 1U) << i;
    }
  }
  put(block.word, out);
  for (std::size_t plane = 0; plane < Packing::kPlanes; ++plane) put(planes[plane], out + 4 + 4 * plane);
}

template <class Packing>
bool unpack(const std::byte* bytes, Block& block) {
  std::array<std::uint32_t, Packing::kPlanes> planes{};
  block.word = get(bytes);
  for (std::size_t plane = 0; plane < Packing::kPlanes; ++plane) planes[plane] = get(bytes + 4 + 4 * plane);
  bool is_right = true;
  for (std::size_t i = 0; i < kLanes; ++i) {
    typename Packing::Lane lane;
    for (std::size_t at = 0; at < Packing::kLaneBytes; at += 4) {
      const auto word = get(bytes + Packing::kLanesAt + Packing::kLaneBytes * i + at);
      lane.word |= typename Packing::Word{word} << 8 * at;
    }
    for (std::size_t plane = 0; plane < Packing::kPlanes; ++plane) {
      lane.in_planes |= (planes[plane] >> i & 1U) << plane;
    }
    is_right &= Packing::split(lane, block.codes.data() + i * kPairs);
  }
  return is_right;
}

template <class Packing>
constexpr Format format(std::string_view name, unsigned bits) {
  return {name,          bits,           Packing::kCodes, Packing::kBlockBytes, kLevels<Packing::kCodes>.data(),
          pack<Packing>, unpack<Packing>};
}

}  // namespace

constinit const Format kQ8 = format<PackingQ8>("q8", 8);
constinit const Format kQ4 = format<PackingQ4>("q4", 4);

}  // namespace cairn::quant::own
