// Bytes of a tensor from dtype and shape, with the reason when there is no such number. Used by the header's reader
// (which adds the path to the message) and its writer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cairn/dtype.hpp"
#include "format/safetensors_error.hpp"

namespace cairn::format {

struct TensorSize {
  std::uint64_t bytes = 0;  ///< valid when there is no error
  std::optional<SafetensorsErrorKind> error;
  std::string reason;  ///< of the error, without path and tensor name
};

/// The reference's checks in its order: product of the shape left to right, bits, whole bytes.
TensorSize try_tensor_bytes(DType dtype, std::span<const std::uint64_t> shape);

/// "[2, 3]"; long shapes are cut.
std::string shape_text(std::span<const std::uint64_t> shape);

}  // namespace cairn::format
