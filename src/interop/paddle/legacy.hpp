// Checkpoints that PaddlePaddle's trainers write with unified_checkpoint off: pickles by rank, described as the unified
// form of the same state would be.
//
// The weights of a rank say which of its parameters has which static name, and so what its state belongs to. How ranks cut
// weights, tensor_cuts.hpp knows; the rest is that of unmerged files (unmerged.hpp). As in unified checkpoints, F32 weights
// count as their own master weights where others have some.
#pragma once

#include "interop/directory.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// Requires: legacy_kind() is kPickles. Adds tensors, and to `out.about` what is left behind. Throws Error(kFormat or
/// kNotFound) naming file and tensor, as legacy_files(), read_weights(), read_optimizer() and read_rank_files(); and where
/// nothing tells how the ranks cut a weight.
void read_legacy(Reading& reading, Recognised& out);

}  // namespace cairn::interop
