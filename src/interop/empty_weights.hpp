// Weights that were saved without their elements, as DeepSpeed's ZeRO-3 leaves them on a rank.
//
// Under ZeRO-3 each rank holds a part of every weight in a place of DeepSpeed's own, and the parameter itself is empty:
// its shape is [0], whatever its shape was. A state_dict that was not gathered has such weights; only small ones are
// whole. A weight of one dimension without elements has no use in any layer: layers without inputs or outputs have
// weights of shape [n, 0] or [0, n].
#pragma once

#include <string>
#include <vector>

#include "plan/stored_tensors.hpp"

namespace cairn::interop {

struct EmptyWeights {
  std::vector<std::string> names;  ///< in catalog order
  std::string words;               ///< one line that says how many, which, and how it came about; empty without names
};

/// Float tensors of shape [0] that must have had elements: called weight or ..._proj, adapters' matrices, tensors whose
/// name has elements under another layer's number, and the biases beside such weights. Section optimizer is left out.
EmptyWeights empty_weights(const plan::StoredTensors& tensors);

}  // namespace cairn::interop
