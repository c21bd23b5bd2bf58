// The arithmetic of Cairn's own codecs q8 and q4: the same bits from every processor and every compiler.
//
// Rules: F32 +, -, *, / and sqrt, each rounded once in the written order (compile with -ffp-contract=off, like the
// quant layer), conversions that truncate, and integers. libm is not used. Logarithms are integers in units of 2^-20
// octave. The two polynomials are exact at both ends of an octave, so the functions are monotone where octaves meet.
// The polynomials' errors are at most 3 and 0.3 units, but only kSlack, which is larger, is relied on. README.md,
// "Cairn's q8 and q4", explains the functions and the format. Only sources of this layer may include this header.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/host_device.hpp"

// CAIRN_QUANT_CLONES compiles a function twice, for any x86-64 processor and for processors with AVX2, and picks one
// when the program starts. Both give the same bits: AVX2 without FMA has the same operations, on more values at once.
// Not used with sanitizers, which are not yet initialised when the choice is made.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__) && \
    !defined(CAIRN_THREAD_SANITIZER) && !defined(CAIRN_ADDRESS_SANITIZER)
#define CAIRN_QUANT_CLONES __attribute__((target_clones("default", "avx2")))
#else
#define CAIRN_QUANT_CLONES
#endif

namespace cairn::quant::exact {

// Correctly rounded division and square roots without branches, for arguments that are not extreme.
//
// On a processor these functions are the plain operators. A GPU has no such instructions: nvcc compiles `/` and sqrt()
// to a guess, its refinement by fused operations, and a branch for arguments where this fails. This code has only the
// guess and its refinement: half the code, the same bits. On the host, tests/unit/quant/exact_math_test.cpp refines
// every guess that the hardware can make (within a wider error than NVIDIA states), for every significand.

/// 1/b from a guess within 2 units in the last place. For the b just below a power of 2, the reciprocal lies so little
/// above the midpoint of two floats that the corrections see a tie. The larger float, whose last bit is set, is
/// correct.
CAIRN_HOST_DEVICE inline float refined_reciprocal(float b, float guess) {
  const float nearer = std::fma(guess, std::fma(-b, guess, 1.0f), guess);
  const float nearest = std::fma(nearer, std::fma(-b, nearer, 1.0f), nearer);
  constexpr std::uint32_t kSignificand = 0x007fffffU;
  const bool is_below_power = (std::bit_cast<std::uint32_t>(b) & kSignificand) == kSignificand;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(nearest) | (is_below_power ? 1U : 0U));
}

/// a/b from the correctly rounded 1/b. One correction brings the quotient within one unit, a second makes it exact.
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

/// 2/b for b in [2^-100, 2^100].
CAIRN_HOST_DEVICE inline float twice_reciprocal(float b) {
#ifdef __CUDA_ARCH__
  return 2.0f * reciprocal(b);
#else
  return 2.0f / b;
#endif
}

/// a/b for b in [2^-100, 2^100], if |a| and the quotient's magnitude are each 0 or in [2^-100, 2^127].
/// Other quotients are approximate: NaN or infinite on overflow, and off by at most 2^-100 when they are smaller.
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

/// sqrt(v) for any finite v >= 0.
CAIRN_HOST_DEVICE inline float any_root(float v) {
#ifdef __CUDA_ARCH__
  const bool is_small = v < 0x1p-64f;
  const float scaled = root(v * (is_small ? 0x1p96f : 1.0f)) * (is_small ? 0x1p-48f : 1.0f);
  return v == 0.0f ? v : scaled;
#else
  return std::sqrt(v);
#endif
}

/// m/sqrt(v), or m/at_zero (a power of 2) if v is 0, with m and v scaled so that root() and quotient() can be used. If
/// the exact |m/sqrt(v)| lies in [2^-60, 2^100], the result has the bits of m / sqrt(v). If it lies below, so does the
/// result; if above, the result is above too, or NaN. If v is negative, infinite or NaN, the result has no meaning.
CAIRN_HOST_DEVICE inline float scaled_ratio(float m, float v, float at_zero) {
  const bool is_small = v < 0x1p-64f;
  const bool is_zero = v == 0.0f;
  const float divisor = root(v * (is_small ? 0x1p96f : 1.0f));
  return quotient(m * (is_small && !is_zero ? 0x1p48f : 1.0f), is_zero ? at_zero : divisor);
}

}  // namespace cairn::quant::exact

namespace cairn::quant::own {

inline constexpr int kLogBits = 20;
inline constexpr std::int32_t kOctave = 1 << kLogBits;

/// Logarithms closer than this (2^-12 octave, 0.01 % of sqrt(v)) count as equal when scales are chosen.
inline constexpr std::int32_t kSlack = 256;

/// log2(v) in units of 2^-20. Requires v > 0 and finite; for other values the result has no meaning.
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
  // Below 2^-62 the value is computed 2^64 times too large, then scaled down, so that a denormal is rounded once.
  const bool is_small = exponent < -62;
  const std::int32_t shift = is_small ? exponent + 64 : exponent;
  const std::uint32_t scaled = std::bit_cast<std::uint32_t>(mantissa) + (static_cast<std::uint32_t>(shift) << 23);
  const float value = std::bit_cast<float>(scaled) * (is_small ? 0x1p-64f : 1.0f);
  return exponent >= 128 ? std::numeric_limits<float>::max() : value;
}

// Levels lie closer where values are frequent: in the middle of [-1, 1] (which suits blocks of Gaussian values).
// spread_*() maps a level's place to its value, and its inverse squeeze_*() maps a value to its place; both keep -1, 0
// and 1. The distance between levels grows from the middle to the ends, by a factor of 2.8 for u and 1.8 for log v.

// Arguments are passed by value, so that loops become vector code.
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
