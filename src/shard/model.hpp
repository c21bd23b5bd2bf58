// Model families: the tensors of a model from its config.json, and how tensor, expert and pipeline parallelism shard
// each. families/ has the families, with facts and sources.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/tensor.hpp"

namespace cairn::shard {

/// The cuts that parallelism makes in one tensor of a family.
struct ShardRule {
  int tp_dim = -1;                ///< dimension cut over tp; -1: replicated over tp
  std::uint64_t unit = 1;         ///< elements of that dimension that `uneven` keeps together (head_dim for q, k, v, o)
  std::int64_t layer = -1;        ///< pipeline: layer number, or -1
  bool first_stage = false;       ///< embeddings
  bool last_stage = false;        ///< final norm, lm_head (a tied embedding sets both)
  std::int64_t expert = -1;       ///< expert number, or -1; ep distributes whole experts
  std::uint64_t parts = 1;        ///< number of equal parts of tp_dim that are cut separately (GPT-2's c_attn: Q | K |
                                  ///< V)
  std::uint64_t scale_block = 0;  ///< for a weight_scale_inv: elements of the weight's tp_dim per scale
  std::uint64_t scaled_size = 0;  ///< for a weight_scale_inv: size of the weight's tp_dim
};

struct RuleTable;  // names to rules (families/builder.hpp), only for this folder

struct Model {
  std::string family;  ///< "llama", "qwen2", "qwen3", "qwen3_moe", "mixtral", "deepseek_v3", "gpt2", or "unknown"
  std::uint64_t layers = 0;
  std::uint64_t experts = 0;
  std::vector<Tensor> tensors;  ///< in the state-dict order of the reference (Hugging Face); empty for "unknown"
  std::shared_ptr<const RuleTable> rules;  ///< for rule_of; has more names than `tensors` (GPT-2's prefix)
};

/// The model of a config.json of any family (GPT-2's with its keys n_embd, n_head ...). Throws Error(kFormat) naming a
/// missing or wrong key; an unknown model_type or quantisation method gives family "unknown". `layers` overrides the
/// number of layers.
Model model_from_config(std::string_view config_json, std::optional<std::uint64_t> layers = std::nullopt);

/// A model by name: "llama-3.1-8b", "smollm2-135m", "deepseek-v3" ... Throws Error(kUsage) listing the names.
Model model_by_name(std::string_view name, std::optional<std::uint64_t> layers = std::nullopt);
std::vector<std::string> model_names();
/// The config.json text of a model that model_names() lists.
std::string config_of(std::string_view name);

/// The rule of one tensor by its name; nothing if the family has none (ShortBinder::bind_unknown() then makes one). The
/// name must be one of section "model"; strip the suffix of other sections' names first (base_name).
std::optional<ShardRule> rule_of(const Model& model, std::string_view tensor_name);

/// Optimizer tensors are named "<parameter>/<role>"; returns "<parameter>". Other names are returned unchanged.
std::string_view base_name(std::string_view name);

/// The parameter of the model to which `name` belongs, or "": the name itself, "<parameter>/<role>", or a dotted name
/// around it such as "optim.state.<parameter>.exp_avg", "adam_m.<parameter>" or DeepSpeed's "lm.<parameter>".
std::string_view parameter_of(const Model& model, std::string_view name);

/// A training state: section "model" unchanged; "master_weights": F32 copies under the same names; "optimizer": F32
/// "<name>/moment1_0" and "<name>/moment2_0". Scales of block-quantised weights are only in section "model".
struct SectionTensors {
  std::string section;
  std::vector<Tensor> tensors;
};
std::vector<SectionTensors> training_state(const Model& model);

}  // namespace cairn::shard
