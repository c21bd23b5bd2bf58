// Statistics as integers of which the largest is the reduced one, whatever the reduction: IEEE bits are ordered like
// integers but for the sign, and NaN comes above all. One source for processors and GPUs.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "base/host_device.hpp"
#include "quant/codec.hpp"

namespace cairn::quant {

inline constexpr std::uint32_t kNanKey = 0xFFFFFFFFU;  ///< of no number: its bits would be those of a NaN
inline constexpr std::uint32_t kNoKey = 0;             ///< of no number either: below all others

/// Larger keys for larger numbers (for smaller ones with kMin).
CAIRN_HOST_DEVICE inline std::uint32_t key_of(Reduction reduction, float value) {
  constexpr std::uint32_t kSign = 0x80000000U;
  if (value != value) return kNanKey;
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t ordered = (bits & kSign) != 0 ? ~bits : bits | kSign;
  return reduction == Reduction::kMax ? ordered : ~ordered;
}

inline float value_of(Reduction reduction, std::uint32_t key) {
  constexpr std::uint32_t kSign = 0x80000000U;
  if (key == kNanKey) return std::numeric_limits<float>::quiet_NaN();
  const std::uint32_t ordered = reduction == Reduction::kMax ? key : ~key;
  return std::bit_cast<float>((ordered & kSign) != 0 ? ordered ^ kSign : ~ordered);
}

}  // namespace cairn::quant
