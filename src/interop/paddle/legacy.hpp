// Checkpoints that PaddlePaddle's trainers write with unified_checkpoint off: pickles of each rank, described like the
// unified form of the same state.
//
// A rank's file of weights has the static names of its parameters, and so identifies the parameter of each state.
// tensor_cuts.hpp determines how ranks cut weights; everything else is as for unmerged files (unmerged.hpp).
// As in unified checkpoints, F32 weights are their own master weights if other weights have master weights.
#pragma once

#include "interop/directory.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// Requires: legacy_kind() is kPickles. Adds tensors, and to `out.about` the state that is left out.
/// Throws Error(kFormat or kNotFound) naming file and tensor, as legacy_files(), read_weights(), read_optimizer() and
/// read_rank_files(), and if the cut of a weight is unknown.
void read_legacy(Reading& reading, Recognised& out);

}  // namespace cairn::interop
