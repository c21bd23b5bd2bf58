// A global tensor as every layer names it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/dtype.hpp"

namespace cairn::shard {

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

}  // namespace cairn::shard
