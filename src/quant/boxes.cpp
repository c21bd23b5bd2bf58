// Shapes and boxes, checked where they could overflow.
#include "quant/boxes.hpp"

#include <fmt/format.h>

#include "base/checked.hpp"

namespace cairn::quant {

Box whole_box(const Shape& shape) { return {Shape(shape.size(), 0), shape}; }

std::uint64_t elements_of(const Shape& shape) {
  if (const auto elements = base::try_product(shape)) return *elements;
  throw Error(ErrorKind::kInternal, fmt::format("shape {} has more than 2^64 elements", shape_text(shape)));
}

bool lies_in(const Box& box, const Shape& shape) {
  if (box.offset.size() != shape.size() || box.shape.size() != shape.size()) return false;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (box.offset[d] > shape[d] || box.shape[d] > shape[d] - box.offset[d]) return false;
  }
  return true;
}

std::uint64_t bytes_of(const Part& part, const Box& box) {
  return base::mul(elements_of(box.shape), bits_of(part.dtype) / 8, "bytes of a quantised tensor");
}

std::string shape_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

}  // namespace cairn::quant
