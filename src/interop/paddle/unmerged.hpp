// Assembles whole tensors, mainly of optimizer state, from PaddlePaddle's files of single ranks.
//
// Moments of O1 may have been coded slice by slice. Then they keep their scales (QuantisedMoments::boxes), unless the
// slices' scales are also those of the whole tensor: in O1 if slices are columns, and always in O2.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "interop/directory.hpp"
#include "interop/paddle/rank_files.hpp"
#include "interop/paddle/slices.hpp"
#include "interop/reading.hpp"
#include "quant/codec.hpp"

namespace cairn::interop {

/// In errors about scales whose codec is unknown.
inline constexpr const char* kNoCodec =
    "no index names their codec (ckpt_quant_stage): put optimizer.safetensors.index.json there, which the machine of "
    "rank 0 has (--part reads its directory too)";

/// The weights of the model, or of an adapter, by name.
using Parameters = std::map<std::string_view, Parameter>;
Parameters parameters_of(Reading& reading);

/// Whether the files have ranges of flattened parameters: 1-d tensors of parameters that have a different number of
/// dimensions, are shorter or, in merged files, have a different length.
bool has_flat_slices(const RankFiles& files, const Parameters& parameters);

/// Adds the tensors of all sets, and the moments that `codec` (null: none) coded. Throws Error(kFormat), naming file
/// and tensor, as put_together(), for a parameter that lacks a tensor that other parameters have, for moments without a
/// master weight or the reverse, and for codes that do not fit the codec.
void read_rank_files(const std::vector<RankFiles>& sets, const quant::Codec* codec, const Parameters& parameters,
                     Reading& reading, Recognised& out);

/// Warns of weights without optimizer state, which may be frozen: no list shows which files ranks should have.
void warn_of_stateless(Reading& reading, const Recognised& out);

}  // namespace cairn::interop
