// PaddlePaddle's codecs: shapes and scales, and one class for both stages.
#include "quant/paddle_codec.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "quant/boxes.hpp"
#include "quant/paddle_kernels.hpp"
#include "quant/paddle_math.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant::paddle {

// Shapes, and the conversion of statistics to scales. This part of the file does not read moments.

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

Role role_of(Stage stage, std::size_t index) {
  return index == 0 || (stage == Stage::kO1 && index == 2) ? Role::kCodes : Role::kScales;
}

std::size_t scale_part(Stage stage, std::size_t index) {
  static constexpr std::array<std::size_t, kScaleCount> o1 = {1, 3, 4};
  return stage == Stage::kO1 ? o1[index] : index + 1;
}

std::array<std::vector<float>, kScaleCount> stored_scales(Stage stage, const Shape& shape, const Box& box,
                                                          const Statistics& statistics) {
  if (statistics.arrays.size() != kScaleCount) throw base::internal_error("statistics of another codec");
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
  // The first group can begin above the box.
  std::uint64_t row = box.offset[0];
  for (std::size_t begin = 0; begin < end; begin = bands.back().end) {
    const std::uint64_t next = std::min(row - row % kGroupRows + kGroupRows, box.offset[0] + box.shape[0]);
    bands.push_back({begin, begin + (next - row) * columns, columns, bands.size() * columns, false});
    row = next;
  }
  return bands;
}

}  // namespace cairn::quant::paddle

namespace cairn::quant {

// Both stages in one class: the kernels process a box band by band, each band with its row of scales.

namespace {

using paddle::Band;
using paddle::kScaleCount;
using paddle::scale_part;
using paddle::Stage;

/// Neutral values of the three statistics.
constexpr std::array<float, kScaleCount> kNothing = {0.0F, std::numeric_limits<float>::infinity(),
                                                     -std::numeric_limits<float>::infinity()};

/// The three scales of a band's columns: one row in memory for each of the three.
class ScaleRows {
 public:
  explicit ScaleRows(const Band& band)
      : columns_(band.one_scale ? std::min(band.width, band.end - band.begin) : band.width),
        one_scale_(band.one_scale) {
    for (auto& row : rows_) row.resize(columns_);
  }
  void clear() {
    for (std::size_t row = 0; row < kScaleCount; ++row) std::fill(rows_[row].begin(), rows_[row].end(), kNothing[row]);
  }
  /// Loads scales from an address with any alignment.
  void load(std::size_t row, const void* from) {
    std::memcpy(rows_[row].data(), from, stored() * sizeof(float));
    if (one_scale_) std::fill(rows_[row].begin(), rows_[row].end(), rows_[row][0]);
  }
  void store(std::size_t row, std::byte* to) const { std::memcpy(to, rows_[row].data(), stored() * sizeof(float)); }
  void reduce_into(Reduction reduction, std::size_t row, float* to) const {
    if (!one_scale_) return merge(reduction, {to, columns_}, rows_[row]);
    for (const float value : rows_[row]) *to = reduced(reduction, *to, value);
  }
  /// Replaces scales of 0 by 1e-8, like Paddle, so that O1 never divides m by 0.
  void replace_zeros() {
    for (auto& row : rows_) std::replace(row.begin(), row.end(), 0.0F, paddle::kEpsilon);
  }
  [[nodiscard]] paddle::Scales view() const { return {rows_[0].data(), rows_[1].data(), rows_[2].data()}; }
  [[nodiscard]] paddle::ScalesOut out() { return {rows_[0].data(), rows_[1].data(), rows_[2].data()}; }
  [[nodiscard]] std::size_t stored() const { return one_scale_ ? 1 : columns_; }

 private:
  std::size_t columns_;
  bool one_scale_;
  std::array<std::vector<float>, kScaleCount> rows_;
};

/// Calls visit(first element, number of elements) for each row of a band.
template <class Visit>
void for_rows(const Band& band, Visit visit) {
  for (std::size_t at = band.begin; at < band.end; at += band.width) visit(at, std::min(band.width, band.end - at));
}

class PaddleCodec : public Codec {
 public:
  PaddleCodec(Stage stage, Traits traits) : stage_(stage), traits_(std::move(traits)) {}

  [[nodiscard]] const Traits& traits() const override { return traits_; }
  [[nodiscard]] std::string left_alone(const Shape& shape) const override { return paddle::left_alone(stage_, shape); }
  [[nodiscard]] Shape view(const Shape& shape) const override { return shape; }
  [[nodiscard]] std::vector<Part> parts(const Shape& shape) const override {
    require_coded(shape);
    return paddle::parts(stage_, shape);
  }
  [[nodiscard]] Box part_box(const Shape& shape, std::size_t part, const Box& box) const override {
    require_box(shape, box);
    return paddle::role_of(stage_, part) == Role::kCodes ? box : paddle::scale_box(stage_, shape, box);
  }

  [[nodiscard]] Statistics no_statistics(const Shape& shape, const Box& box) const override {
    require_box(shape, box);
    const Box scales = paddle::scale_box(stage_, shape, box);
    const std::size_t count = elements_of(scales.shape);
    return {scales,
            {{Reduction::kMax, std::vector<float>(count, kNothing[0])},
             {Reduction::kMin, std::vector<float>(count, kNothing[1])},
             {Reduction::kMax, std::vector<float>(count, kNothing[2])}}};
  }

  void measure(const Source& source, const Box& box, const ConstMoments& moments, Statistics& into) const override {
    require_moments(source, box, moments.m.size(), moments.v.size());
    require_statistics(into);
    for (const Band& band : paddle::bands_of(stage_, source.shape, box)) {
      ScaleRows scales(band);
      scales.clear();
      for_rows(band, [&](std::size_t at, std::size_t length) {
        paddle::measure_row({&moments.m[at], &moments.v[at], length}, scales.out());
      });
      const std::size_t at = statistics_of(into, source.shape, box, band);
      for (std::size_t i = 0; i < kScaleCount; ++i) {
        scales.reduce_into(into.arrays[i].reduction, i, &into.arrays[i].values[at]);
      }
    }
  }

  void encode(const Source& source, const Box& box, const ConstMoments& moments, const Statistics& statistics,
              PartBytes out) const override {
    require_moments(source, box, moments.m.size(), moments.v.size());
    require_statistics(statistics);
    require_parts(source, box, out);
    for (const Band& band : paddle::bands_of(stage_, source.shape, box)) {
      const ScaleRows scales = scales_of(statistics, source.shape, box, band);
      store(scales, band, out);
      for_rows(band, [&](std::size_t at, std::size_t length) {
        const paddle::Row row = {&moments.m[at], &moments.v[at], length};
        auto* first = reinterpret_cast<std::uint8_t*>(&out[0][at]);
        if (stage_ == Stage::kO2) return paddle::encode_row_o2(row, scales.view(), first);
        auto* second = reinterpret_cast<std::uint8_t*>(&out[2][at]);
        paddle::encode_row_o1(row, scales.view(), reinterpret_cast<std::int8_t*>(first), second);
      });
    }
  }

  void store_scales(const Source& source, const Box& box, const Statistics& statistics, PartBytes out) const override {
    require_statistics(statistics);
    const auto stored = parts(source.shape);
    for (std::size_t i = 0; i < kScaleCount; ++i) {
      const std::size_t part = scale_part(stage_, i);
      if (out.size() == stored.size() &&
          out[part].size() == bytes_of(stored[part], part_box(source.shape, part, box))) {
        continue;
      }
      throw misuse(fmt::format("scales of '{}' have another size than their box", base::printable(source.name)));
    }
    for (const Band& band : paddle::bands_of(stage_, source.shape, box)) {
      store(scales_of(statistics, source.shape, box, band), band, out);
    }
  }

  void decode(const Source& source, const Box& box, ConstPartBytes parts, const DecodeOptions& options,
              const Moments& out) const override {
    require_moments(source, box, out.m.size(), out.v.size());
    require_parts(source, box, parts);
    for (const Band& band : paddle::bands_of(stage_, source.shape, box)) {
      ScaleRows scales(band);
      for (std::size_t i = 0; i < kScaleCount; ++i) {
        scales.load(i, &parts[scale_part(stage_, i)][band.scale_begin * sizeof(float)]);
      }
      for_rows(band, [&](std::size_t at, std::size_t length) {
        const paddle::RowOut row = {&out.m[at], &out.v[at], length};
        const auto* first = reinterpret_cast<const std::uint8_t*>(&parts[0][at]);
        if (stage_ == Stage::kO2) {
          return paddle::decode_row_o2(first, scales.view(), options.division, row);
        }
        const auto* second = reinterpret_cast<const std::uint8_t*>(&parts[2][at]);
        paddle::decode_row_o1(reinterpret_cast<const std::int8_t*>(first), second, scales.view(), options.division,
                              row);
      });
    }
  }

 private:
  [[nodiscard]] Error misuse(const std::string& what) const {
    return base::internal_error(fmt::format("{}: {}", traits_.name, what));
  }
  void require_coded(const Shape& shape) const {
    const std::string reason = paddle::left_alone(stage_, shape);
    if (!reason.empty())
      throw misuse(fmt::format("a tensor of shape {} is not coded: {}", shard::shape_text(shape), reason));
  }
  void require_box(const Shape& shape, const Box& box) const {
    require_coded(shape);
    if (shard::fits(box, shape) && elements_of(box.shape) != 0) return;
    throw misuse(fmt::format("a box of shape {} at {} is empty or outside a tensor of shape {}",
                             shard::shape_text(box.shape), shard::shape_text(box.offset), shard::shape_text(shape)));
  }
  void require_moments(const Source& source, const Box& box, std::size_t m, std::size_t v) const {
    require_box(source.shape, box);
    const std::uint64_t expected = elements_of(box.shape);
    if (m == expected && v == expected) return;
    throw misuse(fmt::format("moments of '{}' have {} and {} values, but their box has {}",
                             base::printable(source.name), m, v, expected));
  }
  void require_statistics(const Statistics& statistics) const {
    if (statistics.arrays.size() != kScaleCount) throw misuse("statistics of another codec");
  }
  template <class Spans>
  void require_parts(const Source& source, const Box& box, const Spans& bytes) const {
    const auto expected = parts(source.shape);
    if (bytes.size() != expected.size())
      throw misuse(fmt::format("{} parts instead of {}", bytes.size(), expected.size()));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const std::uint64_t wanted = bytes_of(expected[i], part_box(source.shape, i, box));
      if (bytes[i].size() == wanted) continue;
      throw misuse(fmt::format("part {} of '{}' has {} bytes instead of {}", i, base::printable(source.name),
                               bytes[i].size(), wanted));
    }
  }
  /// The scales of a band, in their stored form.
  [[nodiscard]] ScaleRows scales_of(const Statistics& statistics, const Shape& shape, const Box& box,
                                    const Band& band) const {
    ScaleRows scales(band);
    const std::size_t from = statistics_of(statistics, shape, box, band);
    for (std::size_t i = 0; i < kScaleCount; ++i) scales.load(i, &statistics.arrays[i].values[from]);
    if (stage_ == Stage::kO1) scales.replace_zeros();
    return scales;
  }
  void store(const ScaleRows& scales, const Band& band, PartBytes out) const {
    for (std::size_t i = 0; i < kScaleCount; ++i) {
      scales.store(i, &out[scale_part(stage_, i)][band.scale_begin * sizeof(float)]);
    }
  }
  /// The index of the band's first statistic.
  [[nodiscard]] std::size_t statistics_of(const Statistics& statistics, const Shape& shape, const Box& box,
                                          const Band& band) const {
    Box scales = paddle::scale_box(stage_, shape, box);
    if (scales.shape.size() == 2) scales.offset[0] += band.scale_begin / band.width;
    return index_in(statistics, scales.offset, band.width);
  }

  Stage stage_;
  Traits traits_;
};

}  // namespace

const Codec& paddle_o1() {
  static const PaddleCodec codec(
      Stage::kO1,
      {.name = "paddle-o1",
       .bits = 8,
       .blocks = "a column (axis 1) of a matrix; the whole of a 1-d tensor",
       .error_bounds = "m: 1/254 of the column's largest |m|. r = 1/(sqrt(v) + 1e-8): 1/510 of the column's "
                       "range of r; v itself has no bound, as its large values have the smallest r",
       .cut = Cut::kAnywhere,
       .group_rows = 0,
       .block_elements = 1,
       .figures = {.update_rms = 0.08, .root_rms = 0.03}});
  return codec;
}

const Codec& paddle_o2() {
  static const PaddleCodec codec(
      Stage::kO2, {.name = "paddle-o2",
                   .bits = 4,
                   .blocks = "32 rows of a column of a matrix",
                   .error_bounds = "m: 1/14 of the group's largest |m|. r = 1/(sqrt(v) + 1e-8): 1/30 of the group's "
                                   "range of r; v itself has no bound, as its large values have the smallest r",
                   .cut = Cut::kAnywhere,
                   .group_rows = paddle::kGroupRows,
                   .block_elements = 1,
                   .figures = {.update_rms = 0.3, .root_rms = 0.1}});
  return codec;
}

}  // namespace cairn::quant
