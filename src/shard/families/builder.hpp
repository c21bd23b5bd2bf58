// Common parts of the families: building a Model tensor by tensor together with the rules, and the blocks of a decoder
// layer that several families share.
//
// Facts about names, shapes and tensor parallelism: Hugging Face transformers (modeling_*.py) and
// Megatron-core's column- and row-parallel layers. Column-parallel: dimension 0 of [out, in]; row-parallel:
// dimension 1, its bias replicated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "cairn/dtype.hpp"
#include "shard/families/config.hpp"
#include "shard/model.hpp"

namespace cairn::shard {

struct NameHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const { return std::hash<std::string_view>{}(name); }
};

struct RuleTable {
  std::unordered_map<std::string, ShardRule, NameHash, std::equal_to<>> by_name;
};

using Dims = std::vector<std::uint64_t>;

// Rules for the cut of one tensor, and functions that add its place: layer, expert or stage.
ShardRule replicated();
ShardRule column_parallel(std::uint64_t unit = 1);
ShardRule row_parallel(std::uint64_t unit = 1);
ShardRule in_layer(ShardRule rule, std::uint64_t layer);
ShardRule in_expert(ShardRule rule, std::uint64_t expert);
ShardRule on_first_stage(ShardRule rule);
ShardRule on_last_stage(ShardRule rule);

/// a * b, or Error(kFormat) above 2^62, since shapes come from files.
std::uint64_t times(std::uint64_t a, std::uint64_t b);

class ModelBuilder {
 public:
  ModelBuilder(std::string family, const Config& config, std::uint64_t layers);

  void add(const std::string& name, Dims shape, const ShardRule& rule) { add(name, dtype_, std::move(shape), rule); }
  void add(const std::string& name, DType dtype, Dims shape, const ShardRule& rule);
  /// "<module>.weight" [out, in]; with FP8 quantisation, in F8_E4M3 and with scales, F32 "<module>.weight_scale_inv".
  void linear(const std::string& module, std::uint64_t out, std::uint64_t in, const ShardRule& rule);
  /// For a name that files can contain although the model does not have it: adds a rule, but no tensor.
  void also(const std::string& name, const ShardRule& rule);

  [[nodiscard]] std::uint64_t layers() const { return model_.layers; }
  void set_experts(std::uint64_t experts) { model_.experts = experts; }
  [[nodiscard]] Model take();

 private:
  Model model_;
  DType dtype_;
  bool fp8_ = false;
  Config::Quantization quantization_;
  std::shared_ptr<RuleTable> rules_ = std::make_shared<RuleTable>();
};

/// Sizes and options of a Llama-like decoder.
struct Decoder {
  std::uint64_t hidden = 0;
  std::uint64_t heads = 0;
  std::uint64_t kv_heads = 0;
  std::uint64_t head_dim = 0;
  std::uint64_t vocab = 0;
  bool tied = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool qk_norm = false;
  bool mlp_bias = false;
};

/// hidden_size, num_attention_heads, num_key_value_heads, head_dim (absent or null: hidden / heads), vocab_size,
/// tie_word_embeddings.
Decoder read_decoder(const Config& config);

void add_embedding(ModelBuilder& builder, const Decoder& d);
void add_attention(ModelBuilder& builder, const Decoder& d, std::uint64_t layer);
/// A module ("model.layers.0.mlp.") and its layer, expert or stage.
struct Site {
  std::string module;
  ShardRule place;
};

/// gate_proj, up_proj and down_proj.
void add_gated_mlp(ModelBuilder& builder, const Decoder& d, std::uint64_t ffn, const Site& site);
void add_layer_norms(ModelBuilder& builder, const Decoder& d, std::uint64_t layer);
void add_head(ModelBuilder& builder, const Decoder& d);

std::string layer_prefix(std::uint64_t layer);

// One function per family.
Model llama_model(const Config& config, std::uint64_t layers);
Model qwen2_model(const Config& config, std::uint64_t layers);
Model qwen3_model(const Config& config, std::uint64_t layers);
Model qwen3_moe_model(const Config& config, std::uint64_t layers);
Model mixtral_model(const Config& config, std::uint64_t layers);
Model deepseek_v3_model(const Config& config, std::uint64_t layers);
Model gpt2_model(const Config& config, std::uint64_t layers);

}  // namespace cairn::shard
