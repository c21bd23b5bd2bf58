// Correctly rounded division and square roots without branches, for arguments that are known to be no extreme ones.
//
// On a processor they are the operators. A GPU has no instruction for either: what nvcc makes of `/` and sqrt() is a guess,
// refined by fused operations, and a branch for arguments where that fails; here are the guess and the refinement alone,
// half as many instructions. The same bits come out: tests/unit/quant/exact_math_test.cpp refines every guess that the
// hardware may make (within more than the error that NVIDIA states) for every significand, on the host.
// Only sources of this layer may include this header.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/host_device.hpp"

namespace cairn::quant::exact {

/// 1/b from a guess within 2 units in the last place. For b just below a power of 2 the reciprocal is so little above the middle
/// of two floats that the corrections see a tie; the larger of the two, whose last bit is set, is right.
CAIRN_HOST_DEVICE inline float refined_reciprocal(float b, float guess) {
  const float nearer = std::fma(guess, std::fma(-b, guess, 1.0f), guess);
  const float nearest = std::fma(nearer, std::fma(-b, nearer, 1.0f), nearer);
  constexpr std::uint32_t kSignificand = 0x007fffffU;
  const bool is_below_power = (std::bit_cast<std::uint32_t>(b) & kSignificand) == kSignificand;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(nearest) | (is_below_power ? 1U : 0U));
}

/// a/b from the correctly rounded 1/b: a second correction of a quotient that the first one brought within one unit.
CAIRN_HOST_DEVICE inline float refined_quotient(float a, float b, float reciprocal) {
  float quotient = a * reciprocal;
  quotient = std::fma(std::fma(-b, quotient, a), reciprocal, quotient);
  return std::fma(std::fma(-b, quotient, a), reciprocal, quotient);
}

/// sqrt(w) from a guess at 1/sqrt(w) within 3 units in the last place.
CAIRN_HOST_DEVICE inline float refined_root(float w, float guess) {
  const float half = 0.5f * guess;
  const float root = w * guess;
  const float error = std::fma(-root, half, 0.5f);
  const float nearer = std::fma(root, error, root);
  return std::fma(std::fma(-nearer, nearer, w), std::fma(half, error, half), nearer);
}

#ifdef __CUDA_ARCH__
__device__ inline float guessed_reciprocal(float b) {
  float guess = 0;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(guess) : "f"(b));
  return guess;
}
__device__ inline float guessed_inverse_root(float w) {
  float guess = 0;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(guess) : "f"(w));
  return guess;
}
#endif

/// 1/b for b in [2^-100, 2^100].
CAIRN_HOST_DEVICE inline float reciprocal(float b) {
#ifdef __CUDA_ARCH__
  return refined_reciprocal(b, guessed_reciprocal(b));
#else
  return 1.0f / b;
#endif
}

/// 2/b, as reciprocal().
CAIRN_HOST_DEVICE inline float twice_reciprocal(float b) {
#ifdef __CUDA_ARCH__
  return 2.0f * reciprocal(b);
#else
  return 2.0f / b;
#endif
}

/// a/b for b in [2^-100, 2^100] and |a| either 0 or in [2^-100, 2^127] where the quotient is in [2^-100, 2^127] too. Of others
/// it is about as large: NaN or infinite where it overflows, and where it is smaller, off by no more than 2^-100.
CAIRN_HOST_DEVICE inline float quotient(float a, float b) {
#ifdef __CUDA_ARCH__
  return refined_quotient(a, b, reciprocal(b));
#else
  return a / b;
#endif
}

/// sqrt(w) for w in [2^-64, largest float].
CAIRN_HOST_DEVICE inline float root(float w) {
#ifdef __CUDA_ARCH__
  return refined_root(w, guessed_inverse_root(w));
#else
  return std::sqrt(w);
#endif
}

/// sqrt(v) for any v >= 0 that is finite.
CAIRN_HOST_DEVICE inline float any_root(float v) {
#ifdef __CUDA_ARCH__
  const bool is_small = v < 0x1p-64f;
  const float scaled = root(v * (is_small ? 0x1p96f : 1.0f)) * (is_small ? 0x1p-48f : 1.0f);
  return v == 0.0f ? v : scaled;
#else
  return std::sqrt(v);
#endif
}

/// m/sqrt(v), or m/at_zero (a power of 2) where v is 0, with both scaled so that root() and quotient() may be used: the
/// quotient's bits are those of m / sqrt(v) where it is in [2^-60, 2^100]; smaller ones are smaller, larger ones larger or
/// NaN. Without meaning where v is negative, infinite or NaN.
CAIRN_HOST_DEVICE inline float scaled_ratio(float m, float v, float at_zero) {
  const bool is_small = v < 0x1p-64f;
  const bool is_zero = v == 0.0f;
  const float divisor = root(v * (is_small ? 0x1p96f : 1.0f));
  return quotient(m * (is_small && !is_zero ? 0x1p48f : 1.0f), is_zero ? at_zero : divisor);
}

}  // namespace cairn::quant::exact
