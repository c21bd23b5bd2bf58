// Checked arithmetic on shapes and boxes, and the refusals.
#include "quant/boxes.hpp"

#include <fmt/core.h>

#include <cmath>
#include <cstring>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant {

// Arithmetic on shapes and boxes, checked for overflow.

std::uint64_t elements_of(const Shape& shape) {
  if (const auto elements = base::try_product(shape)) return *elements;
  throw base::internal_error(fmt::format("shape {} has more than 2^64 elements", shard::shape_text(shape)));
}

Shape position_of(const Box& box, std::uint64_t index) {
  Shape position(box.shape.size());
  for (std::size_t d = box.shape.size(); d-- > 0;) {
    position[d] = box.offset[d] + index % box.shape[d];
    index /= box.shape[d];
  }
  return position;
}

std::uint64_t bytes_of(const Part& part, const Box& box) {
  return base::mul(elements_of(box.shape), bits_of(part.dtype) / 8, "bytes of a quantised tensor");
}

// The refusals: one line each, with the tensor and the finding, and for moments the remedy.

void require_f32(const Codec& codec, std::string_view name, DType dtype) {
  if (dtype == DType::kF32) return;
  throw Error(ErrorKind::kUsage, fmt::format("tensor '{}' is {}: {} codes moments in F32 only; save it with quant=off",
                                             base::printable(name), name_of(dtype), codec.traits().name));
}

Error unusual_moment(const Codec& codec, const Source& source, const Shape& position, float m, float v) {
  const bool m_is_bad = !std::isfinite(m);
  return {ErrorKind::kState,
          fmt::format("optimizer state of '{}': {} at {} is {}, which {} cannot keep; save it with quant=off",
                      base::printable(source.name), m_is_bad ? "m" : "v", shard::shape_text(position), m_is_bad ? m : v,
                      codec.traits().name)};
}

void refuse_unusual_moments(const Codec& codec, const Source& source, const Box& box, const ConstMoments& moments) {
  for (std::size_t i = 0; i < moments.m.size() && i < moments.v.size(); ++i) {
    if (std::isfinite(moments.m[i]) && std::isfinite(moments.v[i]) && moments.v[i] >= 0) continue;
    throw unusual_moment(codec, source, position_of(box, i), moments.m[i], moments.v[i]);
  }
}

void check_stored(const Codec& codec, std::string_view name, const Part& expected, DType dtype, const Shape& shape) {
  if (dtype == expected.dtype && shape == expected.shape) return;
  throw Error(ErrorKind::kFormat, fmt::format("tensor '{}' is {} {}, but {} stores {} {} there", base::printable(name),
                                              name_of(dtype), shard::shape_text(shape), codec.traits().name,
                                              name_of(expected.dtype), shard::shape_text(expected.shape)));
}

void check_scales(const Codec& codec, std::string_view name, const Part& part, std::span<const std::byte> bytes) {
  if (part.role != Role::kScales || part.dtype != DType::kF32) return;
  for (std::size_t i = 0; i + sizeof(float) <= bytes.size(); i += sizeof(float)) {
    float scale = 0;
    std::memcpy(&scale, bytes.data() + i, sizeof scale);
    if (std::isfinite(scale)) continue;
    throw Error(ErrorKind::kFormat,
                fmt::format("tensor '{}' holds a scale that is {}: the {} codes that it belongs to say nothing; the "
                            "state was not finite when it was saved, or the file is damaged",
                            base::printable(name), scale, codec.traits().name));
  }
}

}  // namespace cairn::quant
