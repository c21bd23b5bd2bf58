// What a tensor of a training state is in relation to the parameters of the model: which parameter it speaks of, in
// what role, and whether it has that parameter's shape, so that the parameter's rule applies to it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shard/model.hpp"

namespace cairn::shard {

struct TensorFacts {
  std::string_view parameter;     ///< the name of its parameter; its own when it speaks of no other
  std::string role;               ///< the rest of the name, "/moment1_0"; empty for parameters
  bool follows_parameter = true;  ///< false: a scalar or of another shape than the parameter (beta1_pow_acc_0, step)
  DType parameter_dtype = DType::kF32;
  std::uint64_t position = 0;  ///< order in flat buffers: that of the model, then of the list
};

/// One per tensor; the views point into `tensors`.
std::vector<TensorFacts> facts_of(const Model& model, const std::vector<std::string>& sections,
                                  const std::vector<TensorSpec>& tensors);

}  // namespace cairn::shard
