// Name, element type and shape of a tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/dtype.hpp"

namespace cairn {

/// A whole tensor, wherever its elements are. A scalar has an empty shape and one element.
struct Tensor {
  std::string name;  ///< UTF-8
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;  ///< in elements

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

}  // namespace cairn
