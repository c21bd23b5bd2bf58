// Tensors that are left out because another has the same memory, as safetensors.torch.save_model() writes tied weights:
// the kept tensor once, and in the metadata the removed name with the kept name as its value.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/stored_tensors.hpp"

namespace cairn::interop {

struct Aliases {
  std::map<std::string, std::string> kept_of;  ///< removed name -> name of the tensor that is stored
  /// One line for each alias whose tensor is not stored either: load_model() could not fill it.
  std::vector<std::string> dangling;
};

/// `metadata`: the combined `__metadata__`. An entry is an alias if its value names a stored tensor, and its key does
/// not. It dangles if both look like names of one kind of parameter ("shared.weight": "embed_tokens.weight"), and
/// neither is stored.
Aliases aliases_of(const std::map<std::string, std::string>& metadata, const plan::StoredTensors& tensors);

}  // namespace cairn::interop
