#include "interop/paddle/tensor_cuts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "interop/paddle/config.hpp"
#include "interop/paddle/slices.hpp"
#include "shard/box_math.hpp"

namespace cairn::interop {
namespace {

enum class Way { kRows, kColumns, kHead, kNoRule };
/// Weights that are cut only where that comes out even.
enum class Even { kAlways, kVocabulary, kKeyValueHeads };

struct Rule {
  std::string_view module;
  Way way;
  Even even = Even::kAlways;
  std::string_view families = {};  ///< none: of all, and of those that are not known
  unsigned fused = 1;
};

/// Of a module that several rules have, the first that is for the family counts.
constexpr std::array<Rule, 46> kRules = {{
    {"embed_tokens", Way::kRows, Even::kVocabulary},
    {"word_embeddings", Way::kRows, Even::kVocabulary},
    {"lm_head", Way::kHead, Even::kVocabulary},
    {"o_proj", Way::kRows},
    {"down_proj", Way::kRows},
    {"q_proj", Way::kColumns},
    {"q_b_proj", Way::kColumns},
    {"k_proj", Way::kColumns, Even::kKeyValueHeads},
    {"v_proj", Way::kColumns, Even::kKeyValueHeads},
    {"kv_b_proj", Way::kColumns, Even::kKeyValueHeads},
    {"qkv_proj", Way::kColumns},
    {"gate_proj", Way::kColumns},
    {"up_proj", Way::kColumns},
    {"gate_up_fused_proj", Way::kColumns, Even::kAlways, {}, 2},
    {"eh_proj", Way::kColumns, Even::kAlways, "deepseek_v2 deepseek_v3"},
    {"head", Way::kColumns, Even::kVocabulary, "deepseek_v2 deepseek_v3"},
    {"w1", Way::kColumns, Even::kAlways, "mixtral qwen"},
    {"w2", Way::kRows, Even::kAlways, "mixtral"},
    {"w2", Way::kColumns, Even::kAlways, "qwen"},
    {"w3", Way::kColumns, Even::kAlways, "mixtral"},
    {"wte", Way::kRows, Even::kVocabulary, "qwen"},
    {"c_attn", Way::kColumns, Even::kAlways, "qwen", 3},
    {"c_proj", Way::kRows, Even::kAlways, "qwen"},
    {"linear1", Way::kColumns, Even::kAlways, "gpt opt"},
    {"linear2", Way::kRows, Even::kAlways, "gpt opt"},
    {"out_proj", Way::kRows, Even::kAlways, "gpt opt"},
    {"project_in", Way::kColumns, Even::kAlways, "opt"},
    {"project_out", Way::kColumns, Even::kAlways, "opt"},
    {"query_key_value", Way::kColumns, Even::kAlways, "bloom chatglm"},
    {"query_key_value", Way::kNoRule},
    {"dense", Way::kRows, Even::kAlways, "bloom chatglm chatglm_v2 glm"},
    {"dense_h_to_4h", Way::kColumns, Even::kAlways, "bloom chatglm glm"},
    {"dense_h_to_4h", Way::kColumns, Even::kAlways, "chatglm_v2", 2},
    {"dense_4h_to_h", Way::kRows, Even::kAlways, "bloom chatglm chatglm_v2 glm"},
    {"output_layer", Way::kColumns, Even::kVocabulary, "chatglm_v2"},
    {"shared", Way::kRows, Even::kVocabulary, "t5"},
    {"q", Way::kColumns, Even::kAlways, "t5"},
    {"k", Way::kColumns, Even::kAlways, "t5"},
    {"v", Way::kColumns, Even::kAlways, "t5"},
    {"o", Way::kRows, Even::kAlways, "t5"},
    {"wi", Way::kColumns, Even::kAlways, "t5"},
    {"wi_0", Way::kColumns, Even::kAlways, "t5"},
    {"wi_1", Way::kColumns, Even::kAlways, "t5"},
    {"wo", Way::kRows, Even::kAlways, "t5"},
    {"relative_attention_bias", Way::kColumns, Even::kAlways, "t5"},
    {"dense_h_to_4h", Way::kNoRule},
}};

/// Families with these rules: what they do not name, every rank has.
constexpr std::array<std::string_view, 18> kFamilies = {
    "llama",       "qwen2", "qwen2_moe", "mistral", "mixtral", "gemma",   "yuan",       "jamba", "deepseek_v2",
    "deepseek_v3", "qwen",  "gpt",       "opt",     "bloom",   "chatglm", "chatglm_v2", "glm",   "t5"};

bool is_family(std::string_view name) { return std::ranges::find(kFamilies, name) != kFamilies.end(); }

/// Whether the word is one of those in the text, between spaces.
bool has_word(std::string_view text, std::string_view word) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (text.substr(0, end) == word) return true;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return false;
}

const Rule* rule_of(std::string_view module, std::string_view family) {
  const auto* found = std::ranges::find_if(kRules, [&](const Rule& rule) {
    return rule.module == module && (rule.families.empty() || has_word(rule.families, family));
  });
  return found == kRules.end() ? nullptr : found;
}

/// DeepSeek's experts are in no rank's parts.
bool is_whole_expert(std::string_view name, const ModelFacts& facts) {
  return facts.family.starts_with("deepseek_") && name.find(".experts.") != std::string_view::npos;
}

/// "q_proj" and "weight" of "llama.layers.0.self_attn.q_proj.weight".
std::pair<std::string_view, std::string_view> module_and_kind(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {{}, name};
  return {module_of(name), name.substr(dot + 1)};
}

TensorCut unknown(std::string why) {
  TensorCut out;
  out.unknown = std::move(why);
  return out;
}

/// Every rank has the whole, unless bytes show otherwise. Copies of a weight may drift apart on the ranks of a known
/// family, which PaddleNLP ignores when it merges.
TensorCut copies_of(Copies found, bool is_known, bool may_differ) {
  TensorCut out;
  out.differs = found == Copies::kDiffer;
  const bool is_whole =
      found == Copies::kAlike || (found != Copies::kDiffer && is_known) || (out.differs && may_differ);
  if (is_whole) return out;
  constexpr std::string_view kWhy = "its name does not tell whether the ranks have parts or copies of it, ";
  return unknown(std::string(kWhy) + (out.differs                 ? "and their bytes differ"
                                      : found == Copies::kUniform ? "nor do their bytes, which are one value"
                                                                  : "and their bytes cannot be read"));
}

/// Whether the module is a normalisation by its name: every rank has the whole of its weights.
bool is_norm(std::string_view module) {
  return module.find("norm") != std::string_view::npos || module.starts_with("ln_");
}

/// The dimension that a rule's way means for a tensor of that kind; nothing: every rank has it.
std::optional<std::size_t> dimension_of(Way way, std::string_view kind, std::size_t dimensions) {
  if (dimensions == 0) return std::nullopt;
  if (kind == "bias") return way == Way::kColumns ? std::optional(dimensions - 1) : std::nullopt;
  if (kind == "lora_A") return way == Way::kRows ? std::optional<std::size_t>(0) : std::nullopt;
  if (kind == "lora_B") return way == Way::kColumns ? std::optional(dimensions - 1) : std::nullopt;
  return way == Way::kColumns ? dimensions - 1 : 0;
}

/// Whether a weight that is cut only where it comes out even was cut; nothing where config.json does not tell. Fills in
/// `out.unknown` where it contradicts the shape.
std::optional<bool> is_cut_evenly(const Rule& rule, std::uint64_t length, std::uint32_t ranks, const ModelFacts& facts,
                                  TensorCut& out) {
  if (rule.even == Even::kAlways) return true;
  if (rule.even == Even::kKeyValueHeads) {
    if (!facts.key_value_heads) return std::nullopt;
    return *facts.key_value_heads % ranks == 0;
  }
  if (!facts.vocabulary) return std::nullopt;
  if (length == *facts.vocabulary) return false;
  if (*facts.vocabulary % ranks != 0 || length != *facts.vocabulary / ranks) {
    out.unknown = fmt::format("config.json says vocab_size {}, of which it is neither all nor one of {} equal parts",
                              *facts.vocabulary, ranks);
  }
  return true;
}

}  // namespace

ModelFacts facts_of(const Reading& reading, std::string_view name) {
  const base::Json config = config_of(reading);
  const std::string type = text_of_config(config, "model_type");
  ModelFacts out;
  if (is_family(type)) out.family = type;
  out.vocabulary = size_of_config(config, "vocab_size");
  out.key_value_heads = size_of_config(config, "num_key_value_heads");
  if (!out.key_value_heads) out.key_value_heads = size_of_config(config, "num_attention_heads");
  out.is_tied = has_tied_weights(config);
  const std::string_view first = name.substr(0, name.find('.'));
  if (out.family.empty() && is_family(first)) out.family = first;
  return out;
}

TensorCut cut_of(std::string_view name, const std::vector<std::uint64_t>& shape, std::uint32_t ranks,
                 const ModelFacts& facts, const std::function<Copies()>& copies) {
  constexpr std::array<std::string_view, 5> kKinds = {"weight", "bias", "lora_A", "lora_B", "weight_scale_inv"};
  const auto [module, kind] = module_and_kind(name);
  const bool is_kind_known = std::ranges::find(kKinds, kind) != kKinds.end();
  const bool is_known = is_kind_known && !facts.family.empty();
  const Rule* const rule = is_kind_known && !is_whole_expert(name, facts) ? rule_of(module, facts.family) : nullptr;
  if (rule == nullptr) {
    const bool has_norm = is_norm(module);
    return copies_of(copies(), is_known || has_norm, is_known && has_norm);
  }
  if (rule->way == Way::kNoRule) {
    return unknown("it is a fused weight that PaddlePaddle joins in an order of the model's own; save it again merged");
  }
  const Way way = rule->way != Way::kHead ? rule->way : facts.is_tied ? Way::kRows : Way::kColumns;
  const auto dimension = dimension_of(way, kind, shape.size());
  if (!dimension) return copies_of(copies(), true, is_known);
  if (kind == "lora_B" && rule->fused > 1) {
    return unknown("it is of several weights side by side, of which PaddlePaddle joins adapters in another order");
  }
  TensorCut out;
  const auto is_even = is_cut_evenly(*rule, shape[*dimension], ranks, facts, out);
  if (!out.unknown.empty()) return out;
  if (is_even == false) return copies_of(copies(), true, is_known);
  if (!is_even) {
    const Copies found = copies();
    if (found == Copies::kAlike) return out;
    if (found != Copies::kDiffer) {
      return unknown("config.json does not tell whether the ranks have parts or copies of it, nor do their bytes");
    }
  }
  out.is_cut = true;
  out.dimension = *dimension;
  out.fused = rule->fused;
  return out;
}

}  // namespace cairn::interop
