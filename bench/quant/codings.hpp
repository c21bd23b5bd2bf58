// A codec of src/quant as the tables use it: the input is moments, the output decoded moments and a number of bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "states.hpp"

namespace cairn::quant_table {

/// A tensor coded and decoded.
struct Decoded {
  std::vector<float> m;
  std::vector<float> v;
  double size_bytes = 0;  ///< bytes stored for both moments, including scales
};

struct Coding {
  std::string name;
  unsigned bits = 8;
  std::function<std::optional<Decoded>(const Tensor&)> code;  ///< nullopt: the tensor is left in F32
};

/// All codecs of src/quant.
std::vector<Coding> codecs();

}  // namespace cairn::quant_table
