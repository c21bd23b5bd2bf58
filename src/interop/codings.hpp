// Stored tensors that are codes and scales of moments: Cairn's own, and Paddle's.
#pragma once

#include <vector>

#include "interop/directory.hpp"
#include "interop/paddle.hpp"

namespace cairn::interop {

// Moments that Cairn stored as codes and scales: what the metadata of the data files says of them
// (format/stored_checkpoint.hpp).

/// Whether the metadata has an entry about coded moments.
bool has_codings(const format::SafetensorsHeader& header);

/// Adds to `quantised` the moments that the files of the directory say are coded, and sorts it. Throws Error(kFormat)
/// naming file and tensor: an entry that cannot be read, an unknown codec, a part that is missing or of another dtype
/// or shape than the codec stores, a moment that is stored as well or coded twice.
void add_codings(Recognised& recognised, const Reading& reading);

// Which stored tensors of a Paddle optimizer are codes and scales of which moments.
//
// The index names the stage (ckpt_quant_stage); the parts follow from the codec of that stage (src/quant). A parameter
// whose moments are F32 and that has no scales is not coded, whatever its shape.

/// By name; empty when no set is quantised. Throws Error(kFormat) naming file and tensor: an unknown stage, a part that
/// is missing or of another dtype or shape than the codec stores, a tensor of a coded parameter that is not a part.
std::vector<QuantisedMoments> find_quantised_moments(const std::vector<format::PlacedTensor>& tensors,
                                                     const DataSets& sets, const Reading& reading);

}  // namespace cairn::interop
