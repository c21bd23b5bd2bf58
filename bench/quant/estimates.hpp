// What a save finds out about its own codes by a sample of the blocks (src/quant/errors.hpp), and what that costs.
#pragma once

#include "quant/errors.hpp"
#include "states.hpp"

namespace cairn::quant_table {

struct Estimate {
  quant::ErrorSums exact;
  quant::ErrorSums sample;
  double share = 0;  ///< of the values that are in the sample
  bool is_named = false;
};

Estimate estimate(const quant::Codec& codec, const Tensor& tensor);

struct Times {
  double coding_seconds = 0;
  double sample_seconds = 0;
  int turns = 0;
};

/// Coding in chunks, as a save does.
Times time_sample(const quant::Codec& codec, const Tensor& tensor);

}  // namespace cairn::quant_table
