// Finds the stored tensors of a Paddle optimizer that are codes and scales, and their moments.
//
// The index names the stage (ckpt_quant_stage); the parts follow from the codec of that stage (src/quant). A
// parameter whose moments are neither I8 nor U8 and that has no scales is not coded, whatever its shape.
#pragma once

#include <vector>

#include "interop/reading.hpp"
#include "quant/codec.hpp"

namespace cairn::interop {

/// The codec of the stage that the set's index names; null for O0. Throws Error(kFormat) for an unknown stage.
const quant::Codec* codec_of_stage(const DataSet& set, const Reading& reading);

/// The quantised moments by name; empty if no set is quantised. Throws Error(kFormat), naming file and tensor, for an
/// unknown stage, a part that is missing or has the wrong dtype or shape, or a tensor of a coded parameter's moments
/// that is not a part.
std::vector<QuantisedMoments> find_quantised_moments(const std::vector<format::PlacedTensor>& tensors,
                                                     const DataSets& sets, const Reading& reading);

}  // namespace cairn::interop
