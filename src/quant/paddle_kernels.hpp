// The arithmetic of Paddle's codecs on rows of values: plain loops that the compiler turns into vector code. The rules
// of paddle_math.hpp apply; src/quant/CMakeLists.txt has the compiler options that these rules need.
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

/// For each element of a row, the three scales of its column: the largest |m|, the smallest and the largest r.
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

/// Includes the row's values in the scales; a scale that is NaN stays NaN.
void measure_row(const Row& row, const ScalesOut& scales);

/// Codes: m / m_max * 127 and (r - r_min) / (r_max - r_min) * 255, rounded and clamped.
void encode_row_o1(const Row& row, const Scales& scales, std::int8_t* m_codes, std::uint8_t* r_codes);

/// Codes, rounded and clamped: m / m_max * 7 in a byte's upper half, (r - r_min) / (r_max - r_min) * 15 in its lower.
void encode_row_o2(const Row& row, const Scales& scales, std::uint8_t* codes);

void decode_row_o1(const std::int8_t* m_codes, const std::uint8_t* r_codes, const Scales& scales, Division division,
                   const RowOut& out);
void decode_row_o2(const std::uint8_t* codes, const Scales& scales, Division division, const RowOut& out);

}  // namespace cairn::quant::paddle
