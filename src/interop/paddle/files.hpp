// The files of a save or a conversion for PaddlePaddle's trainers (interop/paddle/written.hpp): their layout, and the
// additional files. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/json.hpp"
#include "cairn/options.hpp"
#include "interop/form.hpp"
#include "interop/paddle/check.hpp"
#include "interop/paddle/written.hpp"
#include "plan/file_layout.hpp"

namespace cairn::interop {

/// The forms of PaddleNLP and of PaddleFormers.
std::span<const Form* const> paddle_forms();
/// As Dialect::map_to_hugging_face().
std::optional<plan::TensorMap> paddle_in_hugging_face(const plan::Catalog& view, const StateToWrite& state);

/// The layout of the data files. Indexes lack their end, which paddle_files() adds. Keeps all metadata except "format".
plan::LayoutOptions paddle_layout(const PaddlePackage& package, const FileOptions& files);

/// The facts in StateToWrite::values under kPaddleValue, from Paddle's checkpoint or an earlier conversion or save.
std::optional<PaddleState> paddle_state_of(const StateToWrite& state);

/// The content of config.json; an empty object without the file. Throws if the file is not JSON: Error(kUsage) for
/// a program's state, Error(kFormat) in a conversion.
base::Json config_of(const StateToWrite& state);

/// Indexes and small files next to the data files. Throws as check_config() and config_of() do.
FormFiles paddle_files(const PaddlePackage& package, const PaddleFacts& facts,
                       std::map<std::string, std::string> indexes, const StateToWrite& state, std::uint64_t processes);

}  // namespace cairn::interop
