// Shapes and boxes, checked where they could overflow.
#include "quant/boxes.hpp"

#include <fmt/core.h>

#include "base/checked.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant {

std::uint64_t elements_of(const Shape& shape) {
  if (const auto elements = base::try_product(shape)) return *elements;
  throw Error(ErrorKind::kInternal, fmt::format("shape {} has more than 2^64 elements", shard::shape_text(shape)));
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

}  // namespace cairn::quant
