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

// q8: a code is 2048 h + l with h < 53. The four l are bits 0 .. 43 of the lane, h0 + 53 h1 + 53^2 h2 + 53^3 h3 is bits
// 44 .. 66.
constexpr std::uint32_t kLowBits8 = 11;
constexpr std::uint32_t kHighs8 = 53;
constexpr std::uint32_t kCodes8 = kHighs8 << kLowBits8;
constexpr std::uint32_t kJoint8 = kHighs8 * kHighs8 * kHighs8 * kHighs8;
constexpr std::size_t kPlanes8 = 3;
constexpr std::size_t kLanes8At = 4 + 4 * kPlanes8;

void pack8(const Block& block, std::byte* out) {
  std::array<std::uint32_t, kPlanes8> planes{};
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const std::uint32_t* code = block.codes.data() + lane * kPairs;
    std::uint64_t low = 0;
    std::uint32_t joint = 0;
    for (std::size_t p = kPairs; p-- > 0;) {
      low = low << kLowBits8 | (code[p] & ((1U << kLowBits8) - 1));
      joint = joint * kHighs8 + (code[p] >> kLowBits8);
    }
    low |= std::uint64_t{joint} << 44;
    put(static_cast<std::uint32_t>(low), out + kLanes8At + 8 * lane);
    put(static_cast<std::uint32_t>(low >> 32), out + kLanes8At + 8 * lane + 4);
    for (std::size_t plane = 0; plane < kPlanes8; ++plane) planes[plane] |= (joint >> (20 + plane) & 1U) << lane;
  }
  put(block.word, out);
  for (std::size_t plane = 0; plane < kPlanes8; ++plane) put(planes[plane], out + 4 + 4 * plane);
}

bool unpack8(const std::byte* bytes, Block& block) {
  std::array<std::uint32_t, kPlanes8> planes{};
  block.word = get(bytes);
  for (std::size_t plane = 0; plane < kPlanes8; ++plane) planes[plane] = get(bytes + 4 + 4 * plane);
  bool is_right = true;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const std::byte* at = bytes + kLanes8At + 8 * lane;
    std::uint64_t low = get(at) | std::uint64_t{get(at + 4)} << 32;
    auto joint = static_cast<std::uint32_t>(low >> 44);
    for (std::size_t plane = 0; plane < kPlanes8; ++plane) joint |= (planes[plane] >> lane & 1U) << (20 + plane);
    is_right &= joint < kJoint8;
    for (std::size_t p = 0; p < kPairs; ++p) {
      block.codes[lane * kPairs + p] = static_cast<std::uint32_t>(low & ((1U << kLowBits8) - 1)) | joint % kHighs8
                                                                                                       << kLowBits8;
      low >>= kLowBits8;
      joint /= kHighs8;
    }
  }
  return is_right;
}

// q4: a code has 9 bits. The low eight of the four are the bytes of the lane, the top bit of pair p goes to plane p.
constexpr std::uint32_t kCodes4 = 512;
constexpr std::size_t kPlanes4 = kPairs;
constexpr std::size_t kLanes4At = 4 + 4 * kPlanes4;

void pack4(const Block& block, std::byte* out) {
  put(block.word, out);
  for (std::size_t p = 0; p < kPlanes4; ++p) {
    std::uint32_t plane = 0;
    for (std::size_t lane = 0; lane < kLanes; ++lane) plane |= (block.codes[lane * kPairs + p] >> 8) << lane;
    put(plane, out + 4 + 4 * p);
  }
  for (std::size_t i = 0; i < kBlockElements; ++i) out[kLanes4At + i] = static_cast<std::byte>(block.codes[i] & 0xff);
}

bool unpack4(const std::byte* bytes, Block& block) {
  block.word = get(bytes);
  for (std::size_t p = 0; p < kPlanes4; ++p) {
    const std::uint32_t plane = get(bytes + 4 + 4 * p);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::size_t i = lane * kPairs + p;
      block.codes[i] = std::to_integer<std::uint32_t>(bytes[kLanes4At + i]) | (plane >> lane & 1U) << 8;
    }
  }
  return true;
}

}  // namespace

constinit const Format kQ8 = {"q8", 8, kLanes8At + 8 * kLanes, kLevels<kCodes8>.data(), pack8, unpack8};
constinit const Format kQ4 = {"q4", 4, kLanes4At + kBlockElements, kLevels<kCodes4>.data(), pack4, unpack4};

}  // namespace cairn::quant::own
