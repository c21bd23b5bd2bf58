// Loops without branches, so that GCC and Clang vectorise them. The encoders copy the length to a local variable,
// because a store through a byte pointer could change the struct that has the length.
#include "quant/paddle_kernels.hpp"

#include <cmath>

namespace cairn::quant::paddle {
namespace {

template <Division division>
void decode_o1(const std::int8_t* __restrict m_codes, const std::uint8_t* __restrict r_codes, const Scales& scales,
               const RowOut& out) {
  const float* __restrict m_max = scales.m_max;
  const float* __restrict r_min = scales.r_min;
  const float* __restrict r_max = scales.r_max;
  float* __restrict m = out.m;
  float* __restrict v = out.v;
  for (std::size_t i = 0; i < out.length; ++i) {
    m[i] = decoded_m_o1<division>(m_codes[i], m_max[i]);
    v[i] = decoded_v<division>(r_codes[i], 255.0F, r_min[i], r_max[i]);
  }
}

template <Division division>
void decode_o2(const std::uint8_t* __restrict codes, const Scales& scales, const RowOut& out) {
  const float* __restrict m_max = scales.m_max;
  const float* __restrict r_min = scales.r_min;
  const float* __restrict r_max = scales.r_max;
  float* __restrict m = out.m;
  float* __restrict v = out.v;
  for (std::size_t i = 0; i < out.length; ++i) {
    m[i] = decoded_m_o2<division>(m_code_of(codes[i]), m_max[i]);
    v[i] = decoded_v<division>(r_code_of(codes[i]), 15.0F, r_min[i], r_max[i]);
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
    const float r = ratio(v[i]);
    m_max[i] = taken_max(m_max[i], std::fabs(m[i]));
    r_min[i] = taken_min(r_min[i], r);
    r_max[i] = taken_max(r_max[i], r);
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
  // Two loops, because GCC 12 does not vectorise one loop with both stores.
  for (std::size_t i = 0; i < length; ++i) {
    m_out[i] = static_cast<std::int8_t>(code_of_m_o1(m[i], m_max[i]));
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
    out[i] =
        static_cast<std::uint8_t>(byte_of(code_of_m_o2(m[i], m_max[i]), code_of_v(v[i], 15.0F, r_min[i], r_max[i])));
  }
}

void decode_row_o1(const std::int8_t* m_codes, const std::uint8_t* r_codes, const Scales& scales, Division division,
                   const RowOut& out) {
  if (division == Division::kTrue) {
    decode_o1<Division::kTrue>(m_codes, r_codes, scales, out);
  } else {
    decode_o1<Division::kReciprocal>(m_codes, r_codes, scales, out);
  }
}

void decode_row_o2(const std::uint8_t* codes, const Scales& scales, Division division, const RowOut& out) {
  if (division == Division::kTrue) {
    decode_o2<Division::kTrue>(codes, scales, out);
  } else {
    decode_o2<Division::kReciprocal>(codes, scales, out);
  }
}

}  // namespace cairn::quant::paddle
