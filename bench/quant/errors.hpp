// Errors of a decoded state.
#pragma once

#include "codings.hpp"

namespace cairn::quant_table {

/// Errors over all values of the coded tensors. update = m / (sqrt(v) + 1e-8).
struct Errors {
  double update_rms = 0;  ///< RMS of the update's error over the RMS of the update
  double root_rms = 0;    ///< RMS of the relative error of sqrt(v), where v > 0
  double update_max = 0;  ///< largest error of an update over the RMS of the update
  double root_max = 0;
  double bytes_per_value = 0;
  double coded = 0;  ///< share of the values that are coded
};

/// Throws Error(kInternal) if the coding gives a NaN, or does not code any tensor.
Errors measure(const Coding& coding, const State& state);

/// The RMS errors of the worst tensor; the errors may come from different tensors.
Errors worst_tensor(const Coding& coding, const State& state);

}  // namespace cairn::quant_table
