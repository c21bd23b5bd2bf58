// The errors that a save estimates from a sample of its blocks (src/quant/errors.hpp), and the cost of the sample.
#pragma once

#include "quant/errors.hpp"
#include "states.hpp"

namespace cairn::quant_table {

struct Estimate {
  quant::ErrorSums exact;
  quant::ErrorSums sample;
  double share = 0;       ///< fraction of the values that is in the sample
  bool is_named = false;  ///< whether a save reports the tensor
};

Estimate estimate(const quant::Codec& codec, const Tensor& tensor);

struct Times {
  double coding_seconds = 0;
  double sample_seconds = 0;
  int turns = 0;
};

/// Returns medians over 101 turns. The tensor is coded in chunks, as in a save.
Times time_sample(const quant::Codec& codec, const Tensor& tensor);

}  // namespace cairn::quant_table
