// Assigns optimizer states to the weights of an adapter whose slices PaddlePaddle merged without static names.
//
// Tensor-parallel ranks merge an adapter into one file, and leave their states in separate files. Weights and states
// are in the order of the model's parameters. The order alone would be a guess, but master weights rounded to BF16
// equal the weights bit for bit: if all are equal, the order is right.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "interop/paddle/legacy_pickles.hpp"
#include "interop/paddle/tensor_cuts.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

struct PickledFile {
  std::string name;
  std::vector<PickledTensor> tensors;  ///< in file order
};

/// `masters`: by tensor-parallel rank. Nothing unless all, rounded, equal the weights. Throws as Reading::open().
std::optional<StaticNames> names_of_merged(const PickledFile& weights, std::span<const PickledFile> masters,
                                           const ModelFacts& facts, Reading& reading);

}  // namespace cairn::interop
