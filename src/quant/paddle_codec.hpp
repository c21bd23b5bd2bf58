// PaddlePaddle's two codecs for Adam moments, bit for bit: its stages O1 (8 bits) and O2 (4 bits).
//
// Both codecs store m and r = 1/(sqrt(v) + 1e-8). README.md has the formulas, the keys and the differences from Paddle.
#pragma once

#include <array>
#include <string>

#include "quant/codec.hpp"

namespace cairn::quant::paddle {

// The tensors that Paddle's stages code, the parts that they store, and the rows that share scales.

enum class Stage { kO1, kO2 };

inline constexpr std::uint64_t kGroupRows = 32;  ///< rows that share scales in O2

/// The result of Codec::left_alone(): the reason why the stage does not code the shape; empty if it does.
[[nodiscard]] std::string left_alone(Stage stage, const Shape& shape);

/// O1: moment1, @scales, moment2, @min_scales, @max_scales. O2: moment2 with both codes, then the three scales.
[[nodiscard]] std::vector<Part> parts(Stage stage, const Shape& shape);

/// The role of part `index` of parts(stage, shape).
[[nodiscard]] Role role_of(Stage stage, std::size_t index);

/// Number of scales of a column or group: largest |m|, smallest r, largest r. Statistics have this order.
inline constexpr std::size_t kScaleCount = 3;

/// The number of the part that holds the scales for statistic `index`.
[[nodiscard]] std::size_t scale_part(Stage stage, std::size_t index);

/// The three scales of a box in their stored form: the box's statistics; in O1, Paddle's 1e-8 replaces zeros.
[[nodiscard]] std::array<std::vector<float>, kScaleCount> stored_scales(Stage stage, const Shape& shape, const Box& box,
                                                                        const Statistics& statistics);

/// The box of scales that the elements of `box` use; for a 1-d tensor, a 0-d box.
[[nodiscard]] Box scale_box(Stage stage, const Shape& shape, const Box& box);

/// Consecutive rows of a box that have the same scales.
struct Band {
  std::size_t begin = 0;        ///< first element, counted from the start of the box
  std::size_t end = 0;          ///< one past the last element
  std::size_t width = 0;        ///< elements of a row; the last row may be shorter
  std::size_t scale_begin = 0;  ///< first scale, counted from the start of the box's scales
  bool one_scale = false;       ///< one scale for all elements; otherwise one for each of `width` columns
};

/// The bands of a box, in order, without gaps. A 1-d tensor is one band, whose rows have an arbitrary length that
/// suits vector code.
[[nodiscard]] std::vector<Band> bands_of(Stage stage, const Shape& shape, const Box& box);

}  // namespace cairn::quant::paddle

namespace cairn::quant {

/// "paddle-o1": 8 bits; for each column (axis 1) one scale for m and two for r; one set for a whole 1-d tensor.
[[nodiscard]] const Codec& paddle_o1();

/// "paddle-o2": both 4-bit codes in one byte; one set of scales for every 32 rows of a column.
[[nodiscard]] const Codec& paddle_o2();

}  // namespace cairn::quant
