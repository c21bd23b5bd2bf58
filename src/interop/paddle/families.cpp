#include "interop/paddle/families.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/digits.hpp"
#include "base/text.hpp"
#include "interop/paddle/config.hpp"

namespace cairn::interop {
namespace {

// Marks of a module:
//   t  a weight of a linear layer: [in, out] in Paddle's memory, [out, in] for Hugging Face
//   h  the head: as t in PaddleNLP unless tied to the embedding; in other packages as the embedding; cut by vocabulary
//   n  as t, in PaddleNLP only, whether tied or not
//   m  as t in memory, but not transposed in PaddleFormers' files
//   e  the head: as t unless tied to the embedding; cut as h
//   x  as for Hugging Face in memory, but transposed in PaddleFormers' files
//   ?  transposed by some models only
//   c  tensor-parallel ranks have columns of the weight, and so of its bias; r: rows
//   v  cut only if the vocabulary is a multiple of the number of ranks; k: only if the number of key-value heads is one
//   2  two weights of equal width side by side, 3: three
//   g  query, key and value side by side, with widths in proportion to the numbers of heads
//   o  several weights in an order specific to the model
//   f  fused by Paddle; separate weights for Hugging Face; -: no mark
// A word is the end of a module's name; '#' stands for digits. The first match counts.

constexpr std::string_view kEnds = "embed_tokens=rv word_embeddings=rv lm_head=hv";
constexpr std::string_view kAttention = "q_proj=tc k_proj=tck v_proj=tck o_proj=tr";
constexpr std::string_view kFeedForward = "gate_proj=tc up_proj=tc down_proj=tr";
constexpr std::string_view kLatent = "q_a_proj=t q_b_proj=tc kv_a_proj_with_mqa=t kv_b_proj=tck";
constexpr std::string_view kFused = "qkv_proj=cf gate_up_fused_proj=c2f";
constexpr std::string_view kFusedByHeads = "qkv_proj=gcf up_gate_proj=c2f";
constexpr std::string_view kFormersFused = "qkv_proj=cf up_gate_proj=c2f";
constexpr std::string_view kVision = "qkv=t proj=t";
constexpr std::string_view kDeepSeek =
    "experts.#.gate_proj=t experts.#.up_proj=t experts.#.down_proj=t gate=t eh_proj=tc shared_head.head=ncv "
    "lm_head=ncv";
constexpr std::string_view kT5 = "shared=rv q=tc k=tc v=tc o=tr wi=tc wi_0=tc wi_1=tc wo=tr relative_attention_bias=c";
constexpr std::string_view kGpt = "q_proj=c k_proj=c v_proj=c qkv_proj=c out_proj=r linear1=c linear2=r";
constexpr std::string_view kOpt =
    "q_proj=tc k_proj=tc v_proj=tc out_proj=tr linear1=tc linear2=tr project_in=c project_out=c";

struct Family {
  std::string_view types;     ///< model_type of config.json
  std::string_view packages;  ///< N: in PaddleNLP; F: in PaddleFormers; f: in PaddleFormers, whose files are not
                              ///< transposed; T: the head is tied unless config.json says otherwise
  std::string_view own;       ///< prefix of names in PaddleNLP (f: PaddleFormers); empty: as in Hugging Face
  std::string_view other;     ///< prefix of Hugging Face's names; empty, and `own` is not: all names differ
  std::array<std::string_view, 5> modules;
};

// N: read in paddlenlp 3.0.0b4, module modeling of transformers/<family>:
// _get_name_mappings and _get_tensor_parallel_mappings. F: in paddleformers 1.2.0, the same module:
// transpose_weight_keys and the parameters' shapes. As version 1.2.0 has hardly any rules for tensor parallelism,
// the rules of versions 0.4.1 and 0.2.6 are used. Rows from a different source have a comment.
constexpr auto kFamilies = std::to_array<Family>({
    {"llama", "NF", "llama.", "model.", {kFused, kAttention, kFeedForward}},
    {"mistral", "N", "mistral.", "model.", {"lm_head=ncv", kAttention, kFeedForward}},
    {"gemma", "NT", "gemma.", "model.", {kFused, kAttention, kFeedForward}},
    {"yuan", "NT", "yuan.", "model.", {"lm_head=ncv", kAttention, kFeedForward}},
    {"jamba", "N", "jamba.", "model.", {"router=t in_proj=t x_proj=t dt_proj=t out_proj=t", kAttention, kFeedForward}},
    {"mixtral", "N", "mixtral.", "model.", {"w1=tc w2=tr w3=tc gate=t lm_head=ncv", kAttention}},
    {"qwen2", "NF", "qwen2.", "model.", {"up_gate_proj=c2f", kFused, kAttention, kFeedForward}},
    {"qwen2_moe", "NF", "qwen2_moe.", "model.", {"gate=t shared_expert_gate=t lm_head=ncv", kAttention, kFeedForward}},
    {"deepseek_v2", "N", "deepseek_v2.", "model.", {kDeepSeek, kLatent, kAttention, kFeedForward}},
    {"deepseek_v3", "NF", "deepseek_v3.", "model.", {kDeepSeek, kLatent, "q_proj=mc o_proj=tr", kFeedForward}},
    {"qwen",
     "N",
     "qwen.",
     "transformer.",
     {"lm_head=ncv wte=rv c_attn=tc3 c_proj=tr w1=tc w2=tc gate_up_fused_proj=c2f"}},
    {"bloom", "NT", "bloom.", "transformer.", {"query_key_value=tc dense=tr dense_h_to_4h=tc dense_4h_to_h=tr"}},
    {"gpt gpt2", "NT", "gpt.", "", {kGpt}},  // weights of Conv1D, which are also [in, out] for Hugging Face
    {"opt", "NT", "opt.", "", {kOpt}},
    {"chatglm", "NT", "chatglm.", "", {"query_key_value=tc dense=tr dense_h_to_4h=tc dense_4h_to_h=tr"}},
    {"chatglm_v2",
     "NT",
     "chatglm_v2.",
     "",
     {"query_key_value=to dense=tr dense_h_to_4h=tc2 dense_4h_to_h=tr output_layer=tcv"}},
    {"glm", "NT", "glm.", "", {"query_key_value=to dense=tr dense_h_to_4h=tc dense_4h_to_h=tr"}},
    {"t5", "NT", "t5.", "", {kT5}},
    {"rw", "N", "", "", {"query_key_value=t dense=t dense_h_to_4h=t dense_4h_to_h=t lm_head=-"}},
    {"mamba", "NT", "", "", {"in_proj=t x_proj=t dt_proj=t out_proj=t"}},
    // For qwen3 and qwen3_moe, PaddleNLP's classes (develop branch, 2025-05) use Hugging Face's tensor names.
    {"qwen3", "NF", "", "model.", {kFormersFused, kAttention, kFeedForward}},
    {"qwen3_moe", "NF", "", "model.", {"gate=t", kFormersFused, kAttention, kFeedForward}},
    // Modules modeling and modeling_moe of cli/train/ernie_pretrain/models/ernie in paddleformers:
    // the models that ERNIE's recipes train. PaddleNLP's relative of BERT has the same model_type.
    {"ernie",
     "f",
     "ernie.",
     "model.",
     {"lm_head=ev gate=? out_proj=? linear1=? linear2=?", kFusedByHeads, kAttention, kFeedForward}},
    {"ernie4_5", "FT", "", "model.", {kFusedByHeads, kAttention, kFeedForward}},
    {"ernie4_5_moe", "FT", "", "model.", {"gate=t mtp_linear_proj.#=t", kFusedByHeads, kAttention, kFeedForward}},
    // Module modeling_moe_vl of transformers/ernie4_5_moe_vl/model, whose patterns accept any character at the dot
    {"ernie4_5_moe_vl",
     "F",
     "",
     "model.",
     {"spatial_linear.0=t spatial_linear.2=t temporal_linear.0=t temporal_linear.2=t mlp=t proj=t qkv=to fc1=t fc2=t",
      kFusedByHeads, kAttention, kFeedForward}},
    {"gemma3 gemma3_text", "FT", "", "model.", {"lm_head=xv", kFormersFused, kAttention, kFeedForward}},
    {"glm4_moe", "F", "", "model.", {kFormersFused, kAttention, kFeedForward}},  // its router is [experts, hidden]
    {"glm4v_moe glm4v_moe_text", "F", "", "model.", {"qkv_proj=tcf", kFormersFused, kVision, kAttention, kFeedForward}},
    {"glm_ocr",
     "F",
     "",
     "model.",
     {"lm_head=ecv attn.qkv=t attn.proj=t merger.proj=t merger.gate_proj=t merger.up_proj=t merger.down_proj=t",
      "mlp.gate_proj=tc mlp.up_proj=tc mlp.down_proj=tr mlp.gate_up_proj=tc2",
      "self_attn.q_proj=tc self_attn.k_proj=tck self_attn.v_proj=tck self_attn.o_proj=tr"}},
    {"gpt_oss", "F", "", "model.", {kFormersFused, kAttention, kFeedForward}},
    {"kimi_k2", "F", "", "model.", {"proj=t up_gate_proj=tc2f qkv_proj=tcf", kAttention, kFeedForward}},
    {"phi3", "F", "", "model.", {"qkv_proj=toc gate_up_proj=tc2", "o_proj=tr down_proj=tr"}},
    {"paddleocr_vl",
     "F",
     "",
     "model.",
     {"out_proj=t linear_1=t linear_2=t fc1=t fc2=t", kFormersFused, kAttention, kFeedForward}},
    {"qwen2_5_vl qwen2_5_vl_text",
     "F",
     "",
     "model.",
     {"merger.mlp.#=t", kFormersFused, kVision, kAttention, kFeedForward}},
    {"qwen3_vl qwen3_vl_text", "F", "", "model.", {"linear_fc#=t", kFormersFused, kVision, kAttention, kFeedForward}},
    {"qwen3_vl_moe qwen3_vl_moe_text", "F", "", "model.", {"gate=t linear_fc#=t", kFormersFused, kVision, kAttention}},
    {"qwen3_next",
     "F",
     "",
     "model.",
     {"gate=t shared_expert_gate=t in_proj_ba=t in_proj_qkvz=t out_proj=t", kFormersFused, kAttention, kFeedForward}},
});

/// The marks that all models have in common: the row for models that are not in kFamilies.
constexpr Family kOthers = {
    "",
    "NF",
    "",
    "",
    {"qkv_proj=?o qkv=?o wqkv=?o c_attn=?o query_key_value=?o dense_h_to_4h=?o gate_up_proj=?c2 "
     "up_gate_proj=?c2f gate_up_fused_proj=c2f",
     kLatent, kAttention, kFeedForward}};

/// Removes the next word, up to a space, from the string and returns it; empty at the end.
std::string_view take_word(std::string_view& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

/// Whether a module's name ends with `end`, in which '#' stands for digits.
bool ends_with(std::string_view name, std::string_view end) {
  while (!end.empty()) {
    if (name.empty()) return false;
    if (end.back() == '#') {
      if (!base::is_digit(name.back())) return false;
      while (!name.empty() && base::is_digit(name.back())) name.remove_suffix(1);
    } else {
      if (name.back() != end.back()) return false;
      name.remove_suffix(1);
    }
    end.remove_suffix(1);
  }
  return name.empty() || name.back() == '.';
}

const Family& row_of(const ModelFacts& facts) {
  const auto* found = std::ranges::find_if(kFamilies, [&](const Family& family) {
    for (std::string_view types = family.types; !types.empty();) {
      if (take_word(types) == facts.family) return true;
    }
    return false;
  });
  return facts.family.empty() || found == kFamilies.end() ? kOthers : *found;
}

/// "qwen3moe" for "qwen3_moe" and for "Qwen3Moe".
std::string squeezed(std::string_view text) {
  std::string out = base::lower(std::string(text));
  std::erase(out, '_');
  return out;
}

/// The model type in kFamilies that matches a class name from "architectures" in config.json ("Qwen3MoeForCausalLM");
/// empty if none matches.
std::string_view type_of_class(std::string_view name) {
  const std::string squeezed_name = squeezed(name);
  for (const Family& family : kFamilies) {
    for (std::string_view types = family.types; !types.empty();) {
      const std::string_view type = take_word(types);
      const std::string stem = squeezed(type);
      if (!squeezed_name.starts_with(stem)) continue;
      const std::string_view rest = std::string_view(squeezed_name).substr(stem.size());
      if (rest.starts_with("for") || rest.starts_with("model") || rest.starts_with("lmhead")) return type;
    }
  }
  return {};
}

/// The first of config.json's architectures; empty if it has none.
std::string first_class(const base::Json& config) {
  const base::Json* classes = config.find("architectures");
  if (classes == nullptr || !classes->is_array() || classes->empty()) return "";
  const base::Json& first = classes->elements().front();
  return first.is_string() ? first.text() : "";
}

/// Takes the type as the family, if the table has it and the family is not known.
void take_type(ModelFacts& facts, std::string_view type) {
  if (!facts.family.empty() || type.empty()) return;
  facts.family = type;
  if (&row_of(facts) == &kOthers) facts.family.clear();
}

std::optional<bool> is_turned_in_memory(const ModelFacts& facts, bool is_nlp, std::string_view parameter) {
  if (!parameter.ends_with(".weight") || parameter.find("lora") != std::string_view::npos) return false;
  const auto marks = marks_of(facts, parameter);
  if (!marks) return facts.family.empty() ? std::nullopt : std::optional(false);
  if (has_mark(*marks, '?')) return std::nullopt;
  if (has_mark(*marks, 'h')) return is_nlp && !is_tied(facts);
  if (has_mark(*marks, 'e')) return !is_tied(facts);
  return has_mark(*marks, 't') || has_mark(*marks, 'm') || (is_nlp && has_mark(*marks, 'n'));
}

}  // namespace

ModelFacts facts_of(const base::Json& config, std::string_view name) {
  ModelFacts out;
  out.type = text_of_config(config, "model_type");
  out.vocabulary = size_of_config(config, "vocab_size");
  out.heads = size_of_config(config, "num_attention_heads");
  out.key_value_heads = size_of_config(config, "num_key_value_heads");
  const base::Json* const said = config.find("num_key_value_heads");
  out.says_key_value_heads = out.key_value_heads.has_value() || (said != nullptr && said->is_null());
  if (!out.key_value_heads) out.key_value_heads = out.heads;
  out.says_tied = tied_of_config(config);
  take_type(out, out.type);
  if (out.type.empty()) take_type(out, type_of_class(first_class(config)));
  take_family(out, name);
  return out;
}

void take_family(ModelFacts& facts, std::string_view name) { take_type(facts, name.substr(0, name.find('.'))); }

bool is_tied(const ModelFacts& facts) { return facts.says_tied.value_or(has_mark(row_of(facts).packages, 'T')); }

std::string why_unknown(const ModelFacts& facts) {
  if (facts.type.empty()) return "config.json says no model_type";
  return fmt::format("nothing is known of model_type '{}' of config.json", base::printable(facts.type));
}

std::optional<std::string_view> marks_of(const ModelFacts& facts, std::string_view parameter) {
  const std::string_view module = parameter.substr(0, std::min(parameter.rfind('.'), parameter.size()));
  const auto look = [&](std::string_view words) -> std::optional<std::string_view> {
    while (!words.empty()) {
      const std::string_view word = take_word(words);
      const std::size_t marks = word.find('=');
      if (ends_with(module, word.substr(0, marks))) return word.substr(marks + 1);
    }
    return std::nullopt;
  };
  for (const std::string_view words : row_of(facts).modules) {
    if (const auto marks = look(words)) return marks;
  }
  return look(kEnds);
}

std::optional<bool> is_turned(const ModelFacts& facts, const PaddlePackage& package, std::string_view parameter) {
  return is_turned_in_memory(facts, package.names_by_type, parameter);
}

std::optional<bool> is_turned_in_file(const ModelFacts& facts, std::string_view parameter) {
  if (has_mark(row_of(facts).packages, 'f')) return false;
  const auto marks = marks_of(facts, parameter);
  if (marks && parameter.ends_with(".weight") && (has_mark(*marks, 'x') || has_mark(*marks, 'm'))) {
    return has_mark(*marks, 'x');
  }
  return is_turned_in_memory(facts, false, parameter);
}

std::optional<bool> is_turned_in_model(const ModelFacts& facts, const PaddlePackage& package,
                                       std::string_view parameter) {
  const auto in_memory = is_turned(facts, package, parameter);
  if (!package.linears_out_in) return in_memory;
  const auto in_file = is_turned_in_file(facts, parameter);
  // Weights for which the table has no answer have Hugging Face's order.
  return in_memory && in_file ? *in_memory != *in_file : false;
}

Fused fused_of(const ModelFacts& facts, std::string_view parameter) {
  const auto found = marks_of(facts, parameter);
  const std::string_view marks = found.value_or("");
  if (has_mark(marks, '2')) return {{1, 1}};
  if (has_mark(marks, '3')) return {{1, 1, 1}};
  if (has_mark(marks, 'o')) {
    constexpr std::string_view kWhy =
        "it is a fused weight that PaddlePaddle joins head by head or in an order of the model's own; save it "
        "again merged";
    return {{}, facts.family.empty() ? fmt::format("{} ({})", kWhy, why_unknown(facts)) : std::string(kWhy)};
  }
  if (!has_mark(marks, 'g')) return {};
  if (facts.heads.value_or(0) == 0 || !facts.says_key_value_heads || facts.key_value_heads == 0U) {
    return {
        {},
        fmt::format("it is query, key and value in one, and config.json does not say {}, by which they are told apart",
                    facts.heads.value_or(0) == 0 ? "num_attention_heads" : "num_key_value_heads")};
  }
  if (*facts.heads == *facts.key_value_heads) return {};
  return {{*facts.heads, *facts.key_value_heads, *facts.key_value_heads}};
}

bool has_misread_scales(const ModelFacts& facts, std::string_view parameter) {
  // If the family does not list the module, the marks that all families share identify a fused weight.
  const auto marks = marks_of(marks_of(facts, parameter) ? facts : ModelFacts(), parameter);
  if (!marks) return false;
  if (has_mark(*marks, 'g')) return fused_of(facts, parameter).widths != std::vector<std::uint64_t>{1};
  return has_mark(*marks, '2') || has_mark(*marks, '3');
}

FamilyPrefixes prefixes_of(const ModelFacts& facts, const PaddlePackage& package) {
  const Family& family = row_of(facts);
  if (family.own.empty() || family.other.empty()) return {};
  FamilyPrefixes out{std::string(family.own), std::string(family.other)};
  if (!package.names_by_type && !has_mark(family.packages, 'f')) std::swap(out.own, out.other);
  return out;
}

bool is_renamed(const ModelFacts& facts) {
  const Family& family = row_of(facts);
  return !family.own.empty() && family.other.empty();
}

}  // namespace cairn::interop
