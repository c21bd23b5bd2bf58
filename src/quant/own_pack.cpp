// The stored bytes of a block: word, bit planes, lanes. README.md has the format.
//
// A lane is what one thread of a warp of 32 handles: pairs 4j .. 4j+3. A lane's bits that do not fill whole words go to
// the planes: bit j of plane p belongs to lane j (a ballot of the warp).
#include <cstring>

#include "quant/own_block.hpp"

namespace cairn::quant::own {
namespace {

constexpr std::size_t kLanes = 32;
constexpr std::size_t kPairs = kBlockElements / kLanes;

void put(std::uint32_t value, std::byte* at) {
  for (int i = 0; i < 4; ++i) at[i] = static_cast<std::byte>(value >> 8 * i & 0xff);
}

std::uint32_t get(const std::byte* at) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= std::to_integer<std::uint32_t>(at[i]) << 8 * i;
  return value;
}

/// A code is h * 2^kLowBits + l with h < kHighs. A lane as a number: l of its four pairs, kLowBits each, the first pair
/// lowest; above them h0 + kHighs h1 + kHighs^2 h2 + kHighs^3 h3. Its lowest kLaneBytes are stored in one piece, the kPlanes
/// bits above in the planes.
template <unsigned kLowBits, std::uint32_t kHighs, std::size_t kLaneBytes, std::size_t kPlanes>
struct Packing {
  static constexpr std::uint32_t kCodes = kHighs << kLowBits;
  static constexpr std::uint32_t kJoints = kHighs * kHighs * kHighs * kHighs;
  static constexpr unsigned kJointAt = kPairs * kLowBits;
  static constexpr unsigned kJointInLane = 8 * kLaneBytes - kJointAt;  ///< bits of the joint number outside the planes
  static constexpr std::size_t kLanesAt = 4 + 4 * kPlanes;
  static constexpr std::size_t kBlockBytes = kLanesAt + kLanes * kLaneBytes;
  static_assert(std::uint64_t{kJoints} <= std::uint64_t{1} << (kJointInLane + kPlanes));

  static void pack(const Block& block, std::byte* out) {
    std::array<std::uint32_t, kPlanes> planes{};
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::uint32_t* code = block.codes.data() + lane * kPairs;
      std::uint64_t number = 0;
      std::uint32_t joint = 0;
      for (std::size_t p = kPairs; p-- > 0;) {
        number = number << kLowBits | (code[p] & ((1U << kLowBits) - 1));
        joint = joint * kHighs + (code[p] >> kLowBits);
      }
      number |= std::uint64_t{joint} << kJointAt;
      for (std::size_t at = 0; at < kLaneBytes; at += 4) {
        put(static_cast<std::uint32_t>(number >> 8 * at), out + kLanesAt + kLaneBytes * lane + at);
      }
      for (std::size_t plane = 0; plane < kPlanes; ++plane) {
        planes[plane] |= (joint >> (kJointInLane + plane) & 1U) << lane;
      }
    }
    put(block.word, out);
    for (std::size_t plane = 0; plane < kPlanes; ++plane) put(planes[plane], out + 4 + 4 * plane);
  }

  static bool unpack(const std::byte* bytes, Block& block) {
    std::array<std::uint32_t, kPlanes> planes{};
    block.word = get(bytes);
    for (std::size_t plane = 0; plane < kPlanes; ++plane) planes[plane] = get(bytes + 4 + 4 * plane);
    bool is_right = true;
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      std::uint64_t number = 0;
      for (std::size_t at = 0; at < kLaneBytes; at += 4) {
        number |= std::uint64_t{get(bytes + kLanesAt + kLaneBytes * lane + at)} << 8 * at;
      }
      auto joint = static_cast<std::uint32_t>(number >> kJointAt);
      for (std::size_t plane = 0; plane < kPlanes; ++plane) {
        joint |= (planes[plane] >> lane & 1U) << (kJointInLane + plane);
      }
      is_right &= joint < kJoints;
      for (std::size_t p = 0; p < kPairs; ++p) {
        const auto low = static_cast<std::uint32_t>(number & ((1U << kLowBits) - 1));
        block.codes[lane * kPairs + p] = low | joint % kHighs << kLowBits;
        number >>= kLowBits;
        joint /= kHighs;
      }
    }
    return is_right;
  }

  static constexpr Format format(std::string_view name, unsigned bits) {
    return {name, bits, kCodes, kBlockBytes, kLevels<kCodes>.data(), pack, unpack};
  }
};

}  // namespace

constinit const Format kQ8 = Packing<11, 53, 8, 3>::format("q8", 8);
constinit const Format kQ4 = Packing<5, 19, 4, 5>::format("q4", 4);

}  // namespace cairn::quant::own
