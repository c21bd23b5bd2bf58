// Sizes of tensors in checked 64-bit arithmetic. In bits first, since F4 and F6 elements are no whole bytes.
#include "format/safetensors_size.hpp"

#include <fmt/core.h>

#include <string_view>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "format/safetensors.hpp"

namespace cairn::format {

std::string shape_text(std::span<const std::uint64_t> shape) {
  constexpr std::size_t kShown = 16;
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size() && i < kShown; ++i) {
    out += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  }
  return out + (shape.size() > kShown ? ", ...]" : "]");
}

TensorSize try_tensor_bytes(DType dtype, std::span<const std::uint64_t> shape) {
  const auto elements = base::try_product(shape);
  if (!elements) {
    return {0, SafetensorsErrorKind::kValidationOverflow,
            fmt::format("the number of elements of shape {} overflows 64 bits", shape_text(shape))};
  }
  const auto bits = base::try_mul(*elements, bits_of(dtype));
  if (!bits) {
    return {0, SafetensorsErrorKind::kValidationOverflow,
            fmt::format("the size in bits of {} elements of {} overflows 64 bits", *elements, name_of(dtype))};
  }
  if (*bits % 8 != 0) {
    return {0, SafetensorsErrorKind::kMisalignedSlice,
            fmt::format("{} elements of {} ({} bits each) are no whole number of bytes", *elements, name_of(dtype),
                        bits_of(dtype))};
  }
  return {*bits / 8, std::nullopt, {}};
}

std::uint64_t tensor_bytes(DType dtype, std::span<const std::uint64_t> shape, std::string_view name) {
  const TensorSize size = try_tensor_bytes(dtype, shape);
  if (size.error) {
    throw SafetensorsError(*size.error, fmt::format("tensor '{}': {}", base::printable(name), size.reason));
  }
  return size.bytes;
}

}  // namespace cairn::format
