// The stored bytes of a block: word, bit planes, lanes, all little-endian. README.md has the format.
#include "quant/own_block.hpp"
#include "quant/own_packing.hpp"

namespace cairn::quant::own {
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
