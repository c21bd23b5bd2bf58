// The files of a save or a conversion that PaddlePaddle's trainers are to resume from (interop/paddle/written.hpp): how they are
// laid out, and what stands beside them. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "cairn/options.hpp"
#include "interop/form.hpp"
#include "interop/paddle/check.hpp"
#include "interop/paddle/written.hpp"
#include "plan/file_layout.hpp"

namespace cairn::interop {

/// Those of PaddleNLP and of PaddleFormers.
std::span<const Form* const> paddle_forms();

/// Its indexes have no end yet: paddle_files() gives it. Of `__metadata__` it keeps all but the format.
plan::LayoutOptions paddle_layout(const PaddlePackage& package, const FileOptions& files);

/// What the state says of itself: a conversion of Paddle's checkpoint has it, or one that was written in one of the forms.
std::optional<PaddleState> paddle_state_of(const StateToWrite& state);

/// Throws Error(kFormat), for a state of a program Error(kUsage), when it is not JSON. An empty object without config.json.
base::Json config_of(const StateToWrite& state);

/// Throws what check_config() and config_of() throw.
FormFiles paddle_files(const PaddlePackage& package, const PaddleFacts& facts,
                       std::map<std::string, std::string> indexes, const StateToWrite& state, std::uint64_t processes);

}  // namespace cairn::interop
