// PaddlePaddle's unified checkpoints: Hugging Face file sets with additional conventions.
//
// BF16 is stored as U16, optimizer tensors are called "<parameter>/moment1_0", and the optimizer's index has more than
// a weight map. The states of single ranks are assembled (unmerged.hpp); a tensor whose place is unknown is refused by
// name, and not mistaken for a whole tensor. Names and shapes stay as stored. Quantised moments: moments.hpp.
#pragma once

#include <string>
#include <string_view>

#include "interop/data_set.hpp"
#include "interop/dialect.hpp"

namespace cairn::interop {

const Dialect& paddle_dialect();

/// Whether there is a file with the name of a rank's optimizer or master weights, an index with Paddle's keys,
/// a set "peft_model", or a file with the metadata format "np".
bool is_paddle(const DataSets& sets, const Reading& reading);

/// The stage that the set's index names, such as "O1"; "O0" if it names none.
std::string quant_stage(const DataSet& set);

/// Whether the set's index names a stage other than O0.
bool is_quantised_paddle(const DataSet& set);

/// Throws Error(kFormat) if an optimizer has scales, but neither index nor file metadata names a codec.
void refuse_scales_without_codec(const DataSets& sets, const Reading& reading);

// Paddle's names of optimizer tensors: "<parameter>/moment1_0", and with quantised moments their scales.

inline constexpr std::string_view kFirstMoment = "/moment1_0";
inline constexpr std::string_view kSecondMoment = "/moment2_0";
inline constexpr std::string_view kScales = "@scales";
inline constexpr std::string_view kMinScales = "@min_scales";
inline constexpr std::string_view kMaxScales = "@max_scales";

inline bool is_scale_name(std::string_view name) {
  return name.ends_with(kScales) || name.ends_with(kMinScales) || name.ends_with(kMaxScales);
}

}  // namespace cairn::interop
