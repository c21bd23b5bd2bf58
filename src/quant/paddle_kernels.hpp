// The arithmetic of Paddle's codecs on rows of values: plain loops that the compiler turns into vector code. The rules
// are those of paddle_math.hpp; src/quant/CMakeLists.txt has the compiler options that they need.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/codec.hpp"
#include "quant/paddle_math.hpp"

namespace cairn::quant::paddle {

/// A row of both moments.
struct Row {
  const float* m = nullptr;
  const float* v = nullptr;
  std::size_t length = 0;
};
struct RowOut {
  float* m = nullptr;
  float* v = nullptr;
  std::size_t length = 0;
};

/// For each element of a row: the largest |m|, the smallest and the largest r.
struct Scales {
  const float* m_max = nullptr;
  const float* r_min = nullptr;
  const float* r_max = nullptr;
};
struct ScalesOut {
  float* m_max = nullptr;
  float* r_min = nullptr;
  float* r_max = nullptr;
};

/// Adds the row's values to the scales; NaN stays.
void measure_row(const Row& row, const ScalesOut& scales);

/// m / m_max * 127 and (r - r_min) / (r_max - r_min) * 255.
void encode_row_o1(const Row& row, const Scales& scales, std::int8_t* m_codes, std::uint8_t* r_codes);

/// m / m_max * 7 in the upper and (r - r_min) / (r_max - r_min) * 15 in the lower half of each byte.
void encode_row_o2(const Row& row, const Scales& scales, std::uint8_t* codes);

void decode_row_o1(const std::int8_t* m_codes, const std::uint8_t* r_codes, const Scales& scales, Division division,
                   const RowOut& out);
void decode_row_o2(const std::uint8_t* codes, const Scales& scales, Division division, const RowOut& out);

}  // namespace cairn::quant::paddle
