// Whose state is whose, where PaddlePaddle merged the slices of an adapter and did not keep the names of its process.
//
// Tensor-parallel ranks leave an adapter merged in one file, and their state in files of their own. Both are in the order
// of the model's parameters. That alone would be a guess; but master weights rounded to BF16 are the weights, bit for bit:
// where all of them are, nothing else fits.
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
  std::vector<PickledTensor> tensors;  ///< in the order of the file
};

/// `masters`: of each tensor-parallel rank. Nothing unless all of them are the weights. Throws as Reading::open().
std::optional<StaticNames> names_of_merged(const PickledFile& weights, std::span<const PickledFile> masters,
                                           const ModelFacts& facts, Reading& reading);

}  // namespace cairn::interop
