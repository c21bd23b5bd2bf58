// Common parts of the families: building a Model tensor by tensor together with the rules, and the blocks of a decoder
// layer that several families share.
//
// Facts about names, shapes and tensor parallelism: Hugging Face transformers (modeling_*.py) and
// Megatron-core's column- and row-parallel layers. Column-parallel: dimension 0 of [out, in]; row-parallel:
// dimension 1, its bias replicated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.hpp"
#include "base/json_reader.hpp"
#include "cairn/dtype.hpp"
#include "shard/model.hpp"

namespace cairn::shard {

// Typed access to a Hugging Face config.json; every error names the key.
//
// Numbers are bounded so that a hostile file can neither overflow a shape nor request billions of tensors.

class Config {
 public:
  /// Throws Error(kFormat) if the text is not JSON; the calls below throw that error if the document is not an object.
  explicit Config(std::string_view json_text) : json_(base::Json::parse(json_text, kDocument)) {}

  /// Whether a key is present and not null.
  [[nodiscard]] bool has(std::string_view key) const { return find(key).has_value(); }
  /// A whole number from 1 to 2^31 (with a fallback: from 0). Throws Error(kFormat).
  [[nodiscard]] std::uint64_t number(std::string_view key) const;
  [[nodiscard]] std::uint64_t number(std::string_view key, std::uint64_t fallback) const;
  /// Number of layers or experts: from 1 to 65536.
  [[nodiscard]] std::uint64_t count(std::string_view key) const;
  [[nodiscard]] bool flag(std::string_view key, bool fallback) const;
  [[nodiscard]] std::string text(std::string_view key, std::string_view fallback) const;
  [[nodiscard]] std::vector<std::uint64_t> numbers(std::string_view key) const;

  /// `dtype` (transformers 5) or `torch_dtype`; F32 when both are missing, as in PyTorch.
  [[nodiscard]] DType dtype() const;

  /// The content of quantization_config; nothing if it is missing. Missing block sizes are 0.
  struct Quantization {
    std::string method;
    std::uint64_t block_rows = 0;
    std::uint64_t block_columns = 0;
  };
  [[nodiscard]] std::optional<Quantization> quantization() const;

 private:
  static constexpr const char* kDocument = "config.json";

  [[nodiscard]] base::JsonReader document() const { return {json_, kDocument}; }
  /// The value of a key; nothing if it is absent or null.
  [[nodiscard]] std::optional<base::JsonReader> find(std::string_view key) const;

  base::Json json_;
};

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
