// What is compared: the codecs, and codings that were tried and left.
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
  double size_bytes = 0;  ///< stored for both moments, scales included
};

struct Coding {
  std::string name;
  unsigned bits = 8;
  bool is_codec = false;                                      ///< of src/quant
  std::function<std::optional<Decoded>(const Tensor&)> code;  ///< nothing: the tensor is left in F32
};

/// All codecs of src/quant.
std::vector<Coding> codecs();

/// Models of what was tried: they decode as the coding would, in double arithmetic, and count its bytes.
std::vector<Coding> tried();

}  // namespace cairn::quant_table
