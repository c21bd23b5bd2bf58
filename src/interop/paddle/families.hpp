// One table of the models that PaddlePaddle's packages have: which of a model's weights are turned round, which are
// several weights in one, and how tensor-parallel ranks cut them. Pure.
//
// No file says it. The packages' model classes do, by the names of modules; families.cpp has what they say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "interop/paddle/written.hpp"

namespace cairn::interop {

/// What is known of a model.
struct ModelFacts {
  std::string family = {};  ///< "llama": one that the table has; empty: another
  std::optional<std::uint64_t> vocabulary = {};
  std::optional<std::uint64_t> key_value_heads = {};  ///< where nothing says so as many as `heads`
  bool is_tied = false;                               ///< head and embedding are one weight
  std::optional<std::uint64_t> heads = {};
  bool says_key_value_heads = false;
  std::string type = {};  ///< model_type of config.json
};

/// What config.json says; where it names no family, the name of a weight may.
ModelFacts facts_of(const base::Json& config, std::string_view name);

/// "config.json says no model_type", or that the table does not have it: why nothing is known of a weight.
std::string why_unknown(const ModelFacts& facts);

/// The table's letters of a module, which families.cpp explains; nothing: the family does not name it. A model of no
/// known family has those that all families share.
std::optional<std::string_view> marks_of(const ModelFacts& facts, std::string_view parameter);
inline bool has_mark(std::string_view marks, char mark) { return marks.find(mark) != std::string_view::npos; }

/// Whether the package has a weight of two dimensions in memory, and so in master weights and moments, the other way
/// round than Hugging Face: [in, out]. Nothing: the table does not say.
std::optional<bool> is_turned(const ModelFacts& facts, const PaddlePackage& package, std::string_view parameter);
/// Whether PaddleFormers turns it between its memory and a file for Hugging Face (its transpose_weight_keys).
std::optional<bool> is_turned_in_file(const ModelFacts& facts, std::string_view parameter);
/// As is_turned(), in the package's files of the model.
std::optional<bool> is_turned_in_model(const ModelFacts& facts, const PaddlePackage& package,
                                       std::string_view parameter);

/// The weights that stand side by side in one, of each of which a tensor-parallel rank has its columns, and how wide
/// they are to one another: {1}, {1, 1} of gate and up, {heads, groups, groups} of query, key and value.
struct Fused {
  std::vector<std::uint64_t> widths = {1};
  std::string unknown = {};  ///< not empty: the table does not tell, and why
};
Fused fused_of(const ModelFacts& facts, std::string_view parameter);
/// Whether several weights stand side by side. Paddle takes a rank's scales of such a weight as one piece, although its
/// columns are several, and resumes with wrong moments without a word.
bool has_misread_scales(const ModelFacts& facts, std::string_view parameter);

/// How the names of layers begin in a package's model of the family ("llama."), and in those of others ("model.");
/// empty where all have the same, or the table does not say.
struct FamilyPrefixes {
  std::string own;
  std::string other;
};
FamilyPrefixes prefixes_of(const ModelFacts& facts, const PaddlePackage& package);
/// Whether PaddleNLP has other names and weights in the model than Hugging Face.
bool is_renamed(const ModelFacts& facts);

}  // namespace cairn::interop
