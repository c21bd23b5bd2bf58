// The keys "part" and "base" of a manifest of kind "part": the tensors of a state that a checkpoint holds.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "base/json_reader.hpp"
#include "cairn/selection.hpp"

namespace cairn::format {

inline constexpr std::string_view kOptimizerSection = "optimizer";

/// The tensors that one of `only` selects (all if it is empty), except those of the sections `without`.
struct Part {
  std::vector<Selection> only;
  std::vector<std::string> without;
  std::optional<BaseCheckpoint> base = {};
};

/// "sections adapter", "names *lora* of sections model", "all without section optimizer": on one line.
std::string words_of_tensors(const Part& part);
/// "step 1000", "'/models/llama-8b' (revision 7)"; empty without a base.
std::string words_of_base(const Part& part);
/// Both: "sections adapter; base: step 1000".
std::string words_of(const Part& part);

base::Json part_as_json(const Part& part);
base::Json base_as_json(const BaseCheckpoint& base);
/// Throw Error(kFormat) for a missing, mistyped or unknown key.
Part read_part(const base::JsonReader& part);
BaseCheckpoint read_base(const base::JsonReader& base);

}  // namespace cairn::format
