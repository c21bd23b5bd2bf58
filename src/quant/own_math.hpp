// The arithmetic of Cairn's own codecs q8 and q4: the same bits from every processor and every compiler.
//
// Rules: F32 +, -, *, / and sqrt, each rounded once in the order written (compile with -ffp-contract=off, as the quant layer
// does), conversions that truncate, and integers. No libm. Logarithms are integers in units of 2^-20 octave. The two
// polynomials are exact at both ends of an octave, so the functions are monotone where octaves meet. Their errors, at most
// 3 and 0.3 units, are part of no promise: encoder and decoder tolerate kSlack.
// What the functions are for, and the format they belong to: README.md, "Cairn's q8 and q4". Only sources of this layer may
// include this header.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "base/host_device.hpp"
#include "quant/exact_math.hpp"

namespace cairn::quant::own {

inline constexpr int kLogBits = 20;
inline constexpr std::int32_t kOctave = 1 << kLogBits;

/// Logarithms closer than this (2^-12 octave, 0.01 % of sqrt(v)) are not told apart where scales are chosen.
inline constexpr std::int32_t kSlack = 256;

/// log2(v) in units of 2^-20. Requires v > 0 and finite; for other values some number without meaning.
CAIRN_HOST_DEVICE inline std::int32_t log2_of(float v) {
  std::uint32_t bits = std::bit_cast<std::uint32_t>(v);
  const bool is_denormal = bits < 0x00800000U;
  const std::uint32_t normalized = std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<std::int32_t>(bits)));
  bits = is_denormal ? normalized : bits;
  const std::int32_t exponent = static_cast<std::int32_t>(bits >> 23) - (is_denormal ? 127 + 149 : 127);
  const float z = std::bit_cast<float>((bits & 0x007fffffU) | 0x3f800000U) - 1.0f;
  float q = 0.025841132f;
  q = q * z + -0.09595581f;
  q = q * z + 0.18194844f;
  q = q * z + -0.2756002f;
  q = q * z + 0.44254494f;
  const float fraction = z + (z * (1.0f - z)) * q;
  return exponent * kOctave + static_cast<std::int32_t>(fraction * 1048576.0f + 0.5f);
}

/// 2^(log / 2^20), at most the largest finite float. Requires log >= -149 * 2^20.
CAIRN_HOST_DEVICE inline float exp2_of(std::int32_t log) {
  const std::int32_t exponent = log >> kLogBits;
  const float z = static_cast<float>(log & (kOctave - 1)) * (1.0f / 1048576.0f);
  float r = 0.0018968494f;
  r = r * z + 0.010844601f;
  r = r * z + 0.0666999f;
  r = r * z + 0.306847f;
  const float mantissa = (1.0f + z) - (z * (1.0f - z)) * r;
  // Below 2^-62 by way of a number 2^64 times as large, so that a denormal is rounded once.
  const bool is_small = exponent < -62;
  const std::int32_t shift = is_small ? exponent + 64 : exponent;
  const std::uint32_t scaled = std::bit_cast<std::uint32_t>(mantissa) + (static_cast<std::uint32_t>(shift) << 23);
  const float value = std::bit_cast<float>(scaled) * (is_small ? 0x1p-64f : 1.0f);
  return exponent >= 128 ? std::numeric_limits<float>::max() : value;
}

// Levels lie closer where values are frequent: in the middle of [-1, 1] (a block of Gaussian values is what they are made
// for). spread() takes a level's place to its value, squeeze() a value to its place; each is the other's inverse, and
// both keep -1, 0 and 1. The distance of levels grows from the middle to the ends by 2.8 for u and 1.8 for log v.

// By value, as vector code needs them.
template <typename T>
CAIRN_HOST_DEVICE inline T smaller(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
CAIRN_HOST_DEVICE inline T larger(T a, T b) {
  return a < b ? b : a;
}

CAIRN_HOST_DEVICE inline float spread_u(float place) {
  return place * exact::root(exact::reciprocal(2.0f - place * place));
}
CAIRN_HOST_DEVICE inline float squeeze_u(float value) {
  return value * exact::root(exact::twice_reciprocal(1.0f + value * value));
}
CAIRN_HOST_DEVICE inline float spread_v(float place) {
  return place * exact::root(exact::twice_reciprocal(3.0f - place * place));
}
CAIRN_HOST_DEVICE inline float squeeze_v(float value) {
  return value * exact::root(exact::quotient(3.0f, 2.0f + value * value));
}

}  // namespace cairn::quant::own
