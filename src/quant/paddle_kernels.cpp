// Loops without branches, so that GCC and Clang vectorise them; a comparison with NaN is false, which the selections use.
// Lengths are local copies: a store through a byte pointer could change the struct that they came from.
#include "quant/paddle_kernels.hpp"

#include <cmath>

namespace cairn::quant::paddle {
namespace {

/// Added to and taken from |x| < 2^22 it rounds to an integer, ties to even, in any vector unit (SSE2 has no rounding).
constexpr float kRounder = 12582912.0F;  // 1.5 * 2^23

/// x clamped to [low, high] and rounded; 0 for NaN. The bounds are integers, so that clamping first is the same.
inline int code_of(float x, float low, float high) {
  x = x < low ? low : x;
  x = x > high ? high : x;
  x = x == x ? x : 0.0F;
  return static_cast<int>((x + kRounder) - kRounder);
}

inline float ratio(float v) { return 1.0F / (std::sqrt(v) + kEpsilon); }

inline float moment_of(float r) {
  const float root = 1.0F / r - kEpsilon;
  return root * root;
}

/// value / divisor as the Paddle version does it.
template <PaddleDivision division>
inline float divided(float value, float divisor) {
  if constexpr (division == PaddleDivision::kTrue) return value / divisor;
  return value * (1.0F / divisor);
}

/// v of a code of r, of which `top` is the largest.
template <PaddleDivision division>
inline float decoded_v(int code, float top, float r_min, float r_max) {
  return moment_of(divided<division>(static_cast<float>(code), top) * (r_max - r_min) + r_min);
}

/// The code of v's r.
inline int code_of_v(float v, float top, float r_min, float r_max) {
  return code_of((ratio(v) - r_min) / (r_max - r_min) * top, 0.0F, top);
}

template <PaddleDivision division>
void decode_o1(const std::int8_t* __restrict m_codes, const std::uint8_t* __restrict r_codes, const Scales& scales,
               const RowOut& out) {
  const float* __restrict m_max = scales.m_max;
  const float* __restrict r_min = scales.r_min;
  const float* __restrict r_max = scales.r_max;
  float* __restrict m = out.m;
  float* __restrict v = out.v;
  for (std::size_t i = 0; i < out.length; ++i) {
    m[i] = divided<division>(static_cast<float>(m_codes[i]), 127.0F) * m_max[i];
    v[i] = decoded_v<division>(r_codes[i], 255.0F, r_min[i], r_max[i]);
  }
}

template <PaddleDivision division>
void decode_o2(const std::uint8_t* __restrict codes, const Scales& scales, const RowOut& out) {
  const float* __restrict m_max = scales.m_max;
  const float* __restrict r_min = scales.r_min;
  const float* __restrict r_max = scales.r_max;
  float* __restrict m = out.m;
  float* __restrict v = out.v;
  for (std::size_t i = 0; i < out.length; ++i) {
    const int upper = codes[i] >> 4;
    const int m_code = upper - ((upper & 8) << 1);  // 4 bits with sign
    m[i] = divided<division>(static_cast<float>(m_code) * m_max[i], 7.0F);
    v[i] = decoded_v<division>(codes[i] & 0xF, 15.0F, r_min[i], r_max[i]);
  }
}

}  // namespace

void measure_row(const Row& row, const ScalesOut& scales) {
  const float* __restrict m = row.m;
  const float* __restrict v = row.v;
  float* __restrict m_max = scales.m_max;
  float* __restrict r_min = scales.r_min;
  float* __restrict r_max = scales.r_max;
  for (std::size_t i = 0; i < row.length; ++i) {
    const float a = std::fabs(m[i]);
    const float r = ratio(v[i]);
    m_max[i] = ((a > m_max[i]) | (a != a)) ? a : m_max[i];
    r_min[i] = ((r < r_min[i]) | (r != r)) ? r : r_min[i];
    r_max[i] = ((r > r_max[i]) | (r != r)) ? r : r_max[i];
  }
}

void encode_row_o1(const Row& row, const Scales& scales, std::int8_t* m_codes, std::uint8_t* r_codes) {
  const float* __restrict m = row.m;
  const float* __restrict v = row.v;
  const float* __restrict m_max = scales.m_max;
  const float* __restrict r_min = scales.r_min;
  const float* __restrict r_max = scales.r_max;
  std::int8_t* __restrict m_out = m_codes;
  std::uint8_t* __restrict r_out = r_codes;
  const std::size_t length = row.length;
  // Two loops: of one with both stores GCC 12 makes no vector code.
  for (std::size_t i = 0; i < length; ++i) {
    m_out[i] = static_cast<std::int8_t>(code_of(m[i] / m_max[i] * 127.0F, -128.0F, 127.0F));
  }
  for (std::size_t i = 0; i < length; ++i) {
    r_out[i] = static_cast<std::uint8_t>(code_of_v(v[i], 255.0F, r_min[i], r_max[i]));
  }
}

void encode_row_o2(const Row& row, const Scales& scales, std::uint8_t* codes) {
  const float* __restrict m = row.m;
  const float* __restrict v = row.v;
  const float* __restrict m_max = scales.m_max;
  const float* __restrict r_min = scales.r_min;
  const float* __restrict r_max = scales.r_max;
  std::uint8_t* __restrict out = codes;
  const std::size_t length = row.length;
  for (std::size_t i = 0; i < length; ++i) {
    const int m_code = code_of(m[i] / m_max[i] * 7.0F, -8.0F, 7.0F);
    const int r_code = code_of_v(v[i], 15.0F, r_min[i], r_max[i]);
    out[i] = static_cast<std::uint8_t>((m_code & 0xF) << 4 | r_code);
  }
}

void decode_row_o1(const std::int8_t* m_codes, const std::uint8_t* r_codes, const Scales& scales,
                   PaddleDivision division, const RowOut& out) {
  if (division == PaddleDivision::kTrue) {
    decode_o1<PaddleDivision::kTrue>(m_codes, r_codes, scales, out);
  } else {
    decode_o1<PaddleDivision::kReciprocal>(m_codes, r_codes, scales, out);
  }
}

void decode_row_o2(const std::uint8_t* codes, const Scales& scales, PaddleDivision division, const RowOut& out) {
  if (division == PaddleDivision::kTrue) {
    decode_o2<PaddleDivision::kTrue>(codes, scales, out);
  } else {
    decode_o2<PaddleDivision::kReciprocal>(codes, scales, out);
  }
}

}  // namespace cairn::quant::paddle
