// A table of the models of PaddlePaddle's packages: transposed weights, weights fused from several, and cuts by
// tensor-parallel ranks. Pure.
//
// No file has these facts: they are in the packages' model classes, by names of modules; families.cpp lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "interop/paddle/written.hpp"

namespace cairn::interop {

/// The known facts about a model.
struct ModelFacts {
  std::string family = {};  ///< a family in the table, such as "llama"; empty if unknown or not in the table
  std::optional<std::uint64_t> vocabulary = {};
  std::optional<std::uint64_t> key_value_heads = {};  ///< equal to `heads` if config.json lacks it
  std::optional<bool> says_tied = {};                 ///< tie_word_embeddings of config.json
  std::optional<std::uint64_t> heads = {};
  bool says_key_value_heads = false;
  std::string type = {};  ///< model_type of config.json
};

/// The facts in config.json. If config.json names no family of the table, a weight's `name` may give the family.
ModelFacts facts_of(const base::Json& config, std::string_view name = {});
/// Takes the family from a weight's name that begins with a family of the table, if the family is not known yet.
void take_family(ModelFacts& facts, std::string_view name);

/// Whether head and embedding are one weight, by config.json, or else by the defaults of the family's configuration
/// class.
bool is_tied(const ModelFacts& facts);

/// The reason why nothing is known about a weight: config.json has no model_type, or one that the table lacks.
std::string why_unknown(const ModelFacts& facts);

/// The marks of a module in the table (explained in families.cpp); nothing: the family does not list it. A model of an
/// unknown family has the marks that all families share.
std::optional<std::string_view> marks_of(const ModelFacts& facts, std::string_view parameter);
inline bool has_mark(std::string_view marks, char mark) { return marks.find(mark) != std::string_view::npos; }

/// Whether the package has a two-dimensional weight as [in, out] in memory, and so in master weights and moments, while
/// Hugging Face has its transpose. Nothing: the table has no answer.
std::optional<bool> is_turned(const ModelFacts& facts, const PaddlePackage& package, std::string_view parameter);
/// Whether PaddleFormers transposes a weight between memory and a file for Hugging Face (transpose_weight_keys in its
/// model classes). Nothing: the table has no answer.
std::optional<bool> is_turned_in_file(const ModelFacts& facts, std::string_view parameter);
/// As is_turned(), but for the package's model files.
std::optional<bool> is_turned_in_model(const ModelFacts& facts, const PaddlePackage& package,
                                       std::string_view parameter);

/// The relative widths of weights fused side by side into one; a tensor-parallel rank has columns of each. {1} for a
/// single weight, {1, 1} for gate and up, {heads, groups, groups} for query, key and value (groups: key-value heads).
struct Fused {
  std::vector<std::uint64_t> widths = {1};
  std::string unknown = {};  ///< the reason why the table has no answer; empty: it has one
};
Fused fused_of(const ModelFacts& facts, std::string_view parameter);
/// Whether several weights are fused side by side. Paddle treats a rank's scales of a fused weight as one piece,
/// although they belong to several ranges of columns, and silently resumes with wrong moments.
bool has_misread_scales(const ModelFacts& facts, std::string_view parameter);

/// The prefix of layer names in a package's model of the family ("llama."), and in the models of other packages
/// ("model."). Both are empty if they are the same, or the table has no answer.
struct FamilyPrefixes {
  std::string own;
  std::string other;
};
FamilyPrefixes prefixes_of(const ModelFacts& facts, const PaddlePackage& package);
/// Whether names and weights in PaddleNLP's model differ from those in Hugging Face's.
bool is_renamed(const ModelFacts& facts);

}  // namespace cairn::interop
