// Model families: the tensors of a model from its config.json, and how each is sharded by tensor, expert and pipeline
// parallelism. The families are under families/; facts and sources stand there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/tensor.hpp"

namespace cairn::shard {

/// How tensor parallelism and the rest treat one tensor of a family.
struct ShardRule {
  int tp_dim = -1;                ///< dimension cut over tp; -1: replicated over tp
  std::uint64_t unit = 1;         ///< elements of that dimension kept together by `uneven` (head_dim for q, k, v, o)
  std::int64_t layer = -1;        ///< pipeline: layer number, or -1
  bool first_stage = false;       ///< embeddings
  bool last_stage = false;        ///< final norm, lm_head (a tied embedding sets both)
  std::int64_t expert = -1;       ///< expert number, or -1: cut over ep by whole experts
  std::uint64_t parts = 1;        ///< tp_dim is that many equal parts, each cut on its own (GPT-2's c_attn: Q | K | V)
  std::uint64_t scale_block = 0;  ///< a weight_scale_inv: one element for so many of the weight's tp_dim
  std::uint64_t scaled_size = 0;  ///< ... whose size is this
};

struct RuleTable;  // names to rules, families/builder.hpp: for this folder only

struct Model {
  std::string family;  ///< "llama", "qwen2", "qwen3", "qwen3_moe", "mixtral", "deepseek_v3", "gpt2", or "unknown"
  std::uint64_t layers = 0;
  std::uint64_t experts = 0;
  std::vector<Tensor> tensors;  ///< in the state-dict order of the reference (Hugging Face); empty for "unknown"
  std::shared_ptr<const RuleTable> rules;  ///< what rule_of looks in; knows more names than `tensors` (GPT-2's prefix)
};

/// Any config.json of the families (GPT-2's n_embd names included). Throws Error(kFormat) naming the key that is
/// missing or wrong; for an unknown model_type or quantisation method returns family "unknown". `layers`: overrides the
/// number of layers when set.
Model model_from_config(std::string_view config_json, std::optional<std::uint64_t> layers = std::nullopt);

/// A model by name: "llama-3.1-8b", "smollm2-135m", "deepseek-v3" ... Throws Error(kUsage) listing the names.
Model model_by_name(std::string_view name, std::optional<std::uint64_t> layers = std::nullopt);
std::vector<std::string> model_names();
/// The config.json of a model of the table, as text.
std::string config_of(std::string_view name);

/// The rule of one tensor by its name, or nothing when the family does not know the name (then FSDP2's dim-0 rule
/// applies). Takes model tensor names; for names of other sections strip the suffix first (base_name).
std::optional<ShardRule> rule_of(const Model& model, std::string_view tensor_name);

/// Optimizer tensors are named "<parameter>/<role>"; gives "<parameter>". Other names come back unchanged.
std::string_view base_name(std::string_view name);

/// The parameter of the model that `name` speaks of: the name itself, "<parameter>/<role>", or a dotted name around it
/// such as "optim.state.<parameter>.exp_avg", "adam_m.<parameter>" or DeepSpeed's "lm.<parameter>". Empty when there is
/// none.
std::string_view parameter_of(const Model& model, std::string_view name);

/// A training state: section "model" as it is; "master_weights": F32 copies under the same names; "optimizer": F32
/// "<name>/moment1_0" and "<name>/moment2_0" (PaddlePaddle's names). Scales of block-quantised weights have no such
/// copies.
struct SectionTensors {
  std::string section;
  std::vector<Tensor> tensors;
};
std::vector<SectionTensors> training_state(const Model& model);

}  // namespace cairn::shard
