// How the codes of four neighbouring pairs become the bits of one lane. README.md, "Stored bytes", has the format.
//
// A block has 32 lanes of four pairs. A lane's bits that do not fill whole words go to the planes: bit j of plane p belongs to
// lane j. One source for processors (own_pack.cpp) and GPUs (own_lanes.hpp). Only sources of this layer may include it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/host_device.hpp"

namespace cairn::quant::own {

inline constexpr std::size_t kLanes = 32;
inline constexpr std::size_t kPairs = 4;  ///< of a lane

/// A code is h * 2^kLowBits + l with h < kHighs. A lane as a number: l of its four pairs, kLowBits each, the first pair
/// lowest; above them h0 + kHighs h1 + kHighs^2 h2 + kHighs^3 h3. Its lowest kLaneBytes are stored in one piece, the kPlanes
/// bits above in the planes.
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
    Word word = 0;                ///< what is stored in one piece
    std::uint32_t in_planes = 0;  ///< bit p goes to plane p
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

  /// False for bits that join() never makes.
  CAIRN_HOST_DEVICE static bool split(const Lane& lane, std::uint32_t* code) {
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
