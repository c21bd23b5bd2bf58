// Arithmetic of Paddle's codecs on one value: one source for processors (paddle_kernels.cpp) and GPUs
// (paddle_lanes.hpp).
//
// Every operation is one F32 operation, in Paddle's order (Paddle saves with NumPy). Rounding is to nearest, ties to
// even; a code that would be NaN is 0. There are no branches, so that loops become vector code; selections rely on the
// fact that comparisons with NaN are false. Only sources of this layer may include this header.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/host_device.hpp"
#include "quant/codec.hpp"

namespace cairn::quant::paddle {

/// The number added to sqrt(v); O1 also stores it in place of a scale of 0.
inline constexpr float kEpsilon = 1e-8F;

/// Adding and subtracting this rounds |x| < 2^22 to an integer, ties to even, in any vector unit (SSE2 cannot round).
inline constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23

/// x rounded and clamped to [low, high]; 0 for NaN. The bounds are integers, so clamping first gives the same result.
CAIRN_HOST_DEVICE inline int code_of(float x, float low, float high) {
  x = x < low ? low : x;
  x = x > high ? high : x;
  x = x == x ? x : 0.0F;
  return static_cast<int>((x + kRounder) - kRounder);
}

CAIRN_HOST_DEVICE inline float ratio(float v) { return 1.0F / (std::sqrt(v) + kEpsilon); }

inline float moment_of(float r) {
  const float root = 1.0F / r - kEpsilon;
  return root * root;
}

/// The larger (smaller) of two values; NaN if `next` is NaN.
CAIRN_HOST_DEVICE inline float taken_max(float so_far, float next) {
  return ((next > so_far) | (next != next)) ? next : so_far;
}
CAIRN_HOST_DEVICE inline float taken_min(float so_far, float next) {
  return ((next < so_far) | (next != next)) ? next : so_far;
}

/// value / divisor, computed by the rule of a Paddle version.
template <Division division>
inline float divided(float value, float divisor) {
  if constexpr (division == Division::kTrue) return value / divisor;
  return value * (1.0F / divisor);
}

/// v from a code of r; `top` is the largest code.
template <Division division>
inline float decoded_v(int code, float top, float r_min, float r_max) {
  return moment_of(divided<division>(static_cast<float>(code), top) * (r_max - r_min) + r_min);
}

/// The code of v's r.
CAIRN_HOST_DEVICE inline int code_of_v(float v, float top, float r_min, float r_max) {
  return code_of((ratio(v) - r_min) / (r_max - r_min) * top, 0.0F, top);
}

CAIRN_HOST_DEVICE inline int code_of_m_o1(float m, float m_max) { return code_of(m / m_max * 127.0F, -128.0F, 127.0F); }
CAIRN_HOST_DEVICE inline int code_of_m_o2(float m, float m_max) { return code_of(m / m_max * 7.0F, -8.0F, 7.0F); }

template <Division division>
inline float decoded_m_o1(int code, float m_max) {
  return divided<division>(static_cast<float>(code), 127.0F) * m_max;
}
template <Division division>
inline float decoded_m_o2(int code, float m_max) {
  return divided<division>(static_cast<float>(code) * m_max, 7.0F);
}

/// O2's byte: m's signed code in the upper half, and r's code in the lower half.
CAIRN_HOST_DEVICE inline int byte_of(int m_code, int r_code) { return (m_code & 0xF) << 4 | r_code; }
inline int m_code_of(int byte) {
  const int upper = byte >> 4;
  return upper - ((upper & 8) << 1);  // 4 bits with sign
}
inline int r_code_of(int byte) { return byte & 0xF; }

}  // namespace cairn::quant::paddle

namespace cairn::quant {

// Statistics as integers whose maximum stands for the reduced value, whatever the reduction: IEEE bits are ordered like
// integers except for the sign, and NaN is above all numbers. One source for processors and GPUs.

inline constexpr std::uint32_t kNanKey = 0xFFFFFFFFU;  ///< stands for NaN; numbers never have this key
inline constexpr std::uint32_t kNoKey = 0;             ///< stands for no value: below the keys of all numbers

/// Larger numbers have larger keys (with kMin, smaller numbers do).
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
