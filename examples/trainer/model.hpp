// The network: a multilayer perceptron with tanh and one output. Its weights are BF16, the same on every rank.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data.hpp"

namespace trainer {

using BFloat16 = std::uint16_t;  ///< the upper half of a float

inline float to_float(BFloat16 value) { return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16); }
/// Rounds to nearest, ties to even.
inline BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<BFloat16>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

/// Losses and gradients are summed over samples and ranks in fixed point. Sums of integers do not depend on the order,
/// so the training is bit for bit the same on any number of ranks, whatever order MPI uses for a sum. A trainer that
/// sums floats is reproducible only on the same number of ranks, and with a reproducible MPI.
using Fixed = std::int64_t;
Fixed to_fixed(double value);
double from_fixed(Fixed value);

/// A tensor, and the place of its elements in the flat memory, in which all tensors are end to end.
struct Parameter {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::size_t first = 0;
  std::size_t elements = 0;
};

class Model {
 public:
  /// Two hidden layers of `width` units.
  explicit Model(std::size_t width);

  /// Initial weight `i` of the flat memory, before rounding.
  [[nodiscard]] float initial_weight(std::uint64_t seed, std::size_t i) const;
  [[nodiscard]] double loss(const Sample& sample);
  /// Returns the loss, and adds its gradient to `gradient`, which has an element for every weight.
  double learn(const Sample& sample, std::span<Fixed> gradient);

  std::vector<Parameter> parameters;  ///< in the order of the flat memory
  std::vector<BFloat16> weights;      ///< the flat memory

 private:
  struct Layer {
    std::size_t rows, columns;
    std::size_t weight, bias;       ///< offsets in the flat memory
    std::vector<float> input = {};  ///< input for the last sample
  };
  float forward(const Sample& sample);

  std::vector<Layer> layers_;
};

}  // namespace trainer
