// Shapes, and which statistics become which scales; no moments are looked at here.
#include "quant/paddle_shapes.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "cairn/error.hpp"
#include "quant/boxes.hpp"
#include "quant/paddle_math.hpp"
#include "quant/statistics.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant::paddle {
namespace {

constexpr std::size_t kRowOfOneScale = 256;

Shape scale_shape(Stage stage, const Shape& shape) { return scale_box(stage, shape, shard::whole(shape)).shape; }

}  // namespace

std::string left_alone(Stage stage, const Shape& shape) {
  if (shape.empty()) return "it is a scalar";
  if (shape.size() > 2) {
    return fmt::format("PaddlePaddle codes tensors of 1 or 2 dimensions, and this one has {}", shape.size());
  }
  if (elements_of(shape) == 0) return "it has no elements";
  if (stage == Stage::kO1) return {};
  if (shape.size() == 1) return "PaddlePaddle's O2 leaves tensors of 1 dimension in full precision";
  if (shape[0] % kGroupRows == 0) return {};
  return fmt::format("its {} rows cannot be divided into groups of {}", shape[0], kGroupRows);
}

std::vector<Part> parts(Stage stage, const Shape& shape) {
  const Shape scales = scale_shape(stage, shape);
  const Part m_scales = {Moment::kFirst, "@scales", Role::kScales, DType::kF32, scales};
  const Part r_min = {Moment::kSecond, "@min_scales", Role::kScales, DType::kF32, scales};
  const Part r_max = {Moment::kSecond, "@max_scales", Role::kScales, DType::kF32, scales};
  if (stage == Stage::kO1) {
    return {{Moment::kFirst, "", Role::kCodes, DType::kI8, shape},
            m_scales,
            {Moment::kSecond, "", Role::kCodes, DType::kU8, shape},
            r_min,
            r_max};
  }
  return {{Moment::kSecond, "", Role::kCodes, DType::kI8, shape}, m_scales, r_min, r_max};
}

std::size_t scale_part(Stage stage, std::size_t index) {
  static constexpr std::array<std::size_t, kScaleCount> o1 = {1, 3, 4};
  return stage == Stage::kO1 ? o1[index] : index + 1;
}

std::array<std::vector<float>, kScaleCount> stored_scales(Stage stage, const Shape& shape, const Box& box,
                                                          const Statistics& statistics) {
  if (statistics.arrays.size() != kScaleCount) throw Error(ErrorKind::kInternal, "statistics of another codec");
  Box row = scale_box(stage, shape, box);
  const std::uint64_t length = row.shape.empty() ? 1 : row.shape.back();
  const std::uint64_t rows = row.shape.size() == 2 ? row.shape[0] : 1;
  std::array<std::vector<float>, kScaleCount> scales;
  for (std::uint64_t i = 0; i < rows; ++i) {
    const std::size_t from = index_in(statistics, row.offset, length);
    for (std::size_t k = 0; k < kScaleCount; ++k) {
      const auto values = std::span(statistics.arrays[k].values).subspan(from, length);
      scales[k].insert(scales[k].end(), values.begin(), values.end());
    }
    if (row.shape.size() == 2) ++row.offset[0];
  }
  if (stage == Stage::kO1) {
    for (auto& values : scales) std::replace(values.begin(), values.end(), 0.0F, kEpsilon);
  }
  return scales;
}

Box scale_box(Stage stage, const Shape& shape, const Box& box) {
  if (shape.size() == 1) return {};
  if (stage == Stage::kO1) return {{box.offset[1]}, {box.shape[1]}};
  const std::uint64_t first = box.offset[0] / kGroupRows;
  const std::uint64_t last = (box.offset[0] + box.shape[0] - 1) / kGroupRows;
  return {{first, box.offset[1]}, {last - first + 1, box.shape[1]}};
}

std::vector<Band> bands_of(Stage stage, const Shape& shape, const Box& box) {
  if (shape.size() == 1) return {{0, box.shape[0], kRowOfOneScale, 0, true}};
  const std::size_t columns = box.shape[1];
  const std::size_t end = box.shape[0] * columns;
  if (stage == Stage::kO1) return {{0, end, columns, 0, false}};
  std::vector<Band> bands;
  // The first group may have begun above the box.
  std::uint64_t row = box.offset[0];
  for (std::size_t begin = 0; begin < end; begin = bands.back().end) {
    const std::uint64_t next = std::min(row - row % kGroupRows + kGroupRows, box.offset[0] + box.shape[0]);
    bands.push_back({begin, begin + (next - row) * columns, columns, bands.size() * columns, false});
    row = next;
  }
  return bands;
}

}  // namespace cairn::quant::paddle
