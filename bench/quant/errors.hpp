// Errors of a decoded state.
#pragma once

#include "codings.hpp"

namespace cairn::quant_table {

/// Errors over all values of the coded tensors. update = m / (sqrt(v) + 1e-8).
struct Errors {
  double update_rms = 0;  ///< RMS error of the update, over the RMS of the update
  double root_rms = 0;    ///< RMS relative error of sqrt(v), where v > 0
  double update_max = 0;  ///< largest error of an update, over the RMS of the update
  double root_max = 0;
  double bytes_per_value = 0;
  double coded = 0;  ///< fraction of the values that is coded
};

/// `bytes_per_value` is NaN if the coding leaves every tensor in F32. Throws Error(kInternal) if an RMS error is not
/// finite.
Errors measure(const Coding& coding, const State& state);

/// The largest RMS errors of a tensor; the two errors can come from different tensors.
Errors worst_tensor(const Coding& coding, const State& state);

}  // namespace cairn::quant_table
