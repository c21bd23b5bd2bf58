// Makes a model from its config.json, and finds rules by tensor name. families/ has the families.
#include "shard/model.hpp"

#include <fmt/core.h>

#include <array>

#include "base/json.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "shard/families/builder.hpp"
#include "shard/name_pattern.hpp"

namespace cairn::shard {
namespace {

struct Family {
  std::string_view model_type;
  std::string_view layers_key;
  Model (*build)(const Config&, std::uint64_t layers);
};

constexpr std::array<Family, 8> kFamilies = {{
    {"llama", "num_hidden_layers", llama_model},
    {"mistral", "num_hidden_layers", llama_model},
    {"qwen2", "num_hidden_layers", qwen2_model},
    {"qwen3", "num_hidden_layers", qwen3_model},
    {"qwen3_moe", "num_hidden_layers", qwen3_moe_model},
    {"mixtral", "num_hidden_layers", mixtral_model},
    {"deepseek_v3", "num_hidden_layers", deepseek_v3_model},
    {"gpt2", "n_layer", gpt2_model},
}};

// Whether the families support the quantisation: none, or FP8 in blocks.
bool is_known_quantization(const Config& config) {
  const auto quantization = config.quantization();
  if (!quantization) return true;
  return quantization->method == "fp8" && quantization->block_rows != 0;
}

constexpr std::string_view kScaleSuffix = "_scale_inv";

// Models by name: the numbers in their published config.json files; config_json() makes such a file from a row.
// tests/data/layouts/models.txt has the expected totals of tensors, parameters and bytes.

struct Row {
  const char* name;
  const char* type;   // model_type
  const char* dtype;  // torch_dtype
  int layers;
  int hidden;
  int heads;
  int kv_heads;
  int head_dim;  // 0: hidden / heads, and the key is omitted
  int ffn;       // intermediate size; in qwen3_moe, that of an expert
  int vocab;
  bool tied = false;
  int experts = 0;
  bool fp8 = false;
};

constexpr std::array kRows = {
    Row{"llama-2-7b", "llama", "float16", 32, 4096, 32, 32, 0, 11008, 32000},
    Row{"llama-2-13b", "llama", "float16", 40, 5120, 40, 40, 0, 13824, 32000},
    Row{"llama-2-70b", "llama", "float16", 80, 8192, 64, 8, 0, 28672, 32000},
    Row{"llama-3-8b", "llama", "bfloat16", 32, 4096, 32, 8, 0, 14336, 128256},
    Row{"llama-3.1-8b", "llama", "bfloat16", 32, 4096, 32, 8, 0, 14336, 128256},
    Row{"llama-3.1-70b", "llama", "bfloat16", 80, 8192, 64, 8, 0, 28672, 128256},
    Row{"llama-3.1-405b", "llama", "bfloat16", 126, 16384, 128, 8, 0, 53248, 128256},
    Row{"llama-3.1-405b-mp16-kv16", "llama", "bfloat16", 126, 16384, 128, 16, 0, 53248, 128256},
    Row{"llama-3.2-1b", "llama", "bfloat16", 16, 2048, 32, 8, 64, 8192, 128256, true},
    Row{"llama-3.2-3b", "llama", "bfloat16", 28, 3072, 24, 8, 128, 8192, 128256, true},
    Row{"qwen2-0.5b", "qwen2", "bfloat16", 24, 896, 14, 2, 0, 4864, 151936, true},
    Row{"qwen2-1.5b", "qwen2", "bfloat16", 28, 1536, 12, 2, 0, 8960, 151936, true},
    Row{"qwen2-7b", "qwen2", "bfloat16", 28, 3584, 28, 4, 0, 18944, 152064},
    Row{"qwen2-72b", "qwen2", "bfloat16", 80, 8192, 64, 8, 0, 29568, 152064},
    Row{"qwen2.5-32b", "qwen2", "bfloat16", 64, 5120, 40, 8, 0, 27648, 152064},
    Row{"qwen3-0.6b", "qwen3", "bfloat16", 28, 1024, 16, 8, 128, 3072, 151936, true},
    Row{"qwen3-8b", "qwen3", "bfloat16", 36, 4096, 32, 8, 128, 12288, 151936},
    Row{"qwen3-32b", "qwen3", "bfloat16", 64, 5120, 64, 8, 128, 25600, 151936},
    Row{"qwen3-30b-a3b", "qwen3_moe", "bfloat16", 48, 2048, 32, 4, 128, 768, 151936, false, 128},
    Row{"qwen3-235b-a22b", "qwen3_moe", "bfloat16", 94, 4096, 64, 4, 128, 1536, 151936, false, 128},
    Row{"mixtral-8x7b", "mixtral", "bfloat16", 32, 4096, 32, 8, 0, 14336, 32000, false, 8},
    Row{"mixtral-8x22b", "mixtral", "bfloat16", 56, 6144, 48, 8, 0, 16384, 32768, false, 8},
    Row{"deepseek-v3", "deepseek_v3", "bfloat16", 61, 7168, 128, 128, 0, 18432, 129280, false, 256, true},
    Row{"deepseek-v3-bf16", "deepseek_v3", "bfloat16", 61, 7168, 128, 128, 0, 18432, 129280, false, 256},
    Row{"gpt2", "gpt2", "float32", 12, 768, 12, 12, 0, 3072, 50257, true},
    Row{"gpt2-medium", "gpt2", "float32", 24, 1024, 16, 16, 0, 4096, 50257, true},
    Row{"gpt2-large", "gpt2", "float32", 36, 1280, 20, 20, 0, 5120, 50257, true},
    Row{"gpt2-xl", "gpt2", "float32", 48, 1600, 25, 25, 0, 6400, 50257, true},
    Row{"smollm2-135m", "llama", "bfloat16", 30, 576, 9, 3, 0, 1536, 49152, true},
};

const char* architecture(std::string_view type) {
  if (type == "llama") return "LlamaForCausalLM";
  if (type == "qwen2") return "Qwen2ForCausalLM";
  if (type == "qwen3") return "Qwen3ForCausalLM";
  if (type == "qwen3_moe") return "Qwen3MoeForCausalLM";
  if (type == "mixtral") return "MixtralForCausalLM";
  if (type == "deepseek_v3") return "DeepseekV3ForCausalLM";
  return "GPT2LMHeadModel";
}

void add_experts(const Row& row, base::Json& json) {
  const std::string_view type = row.type;
  if (type == "mixtral") {
    json["num_local_experts"] = row.experts;
    json["num_experts_per_tok"] = 2;
  } else if (type == "qwen3_moe") {
    json["num_experts"] = row.experts;
    json["num_experts_per_tok"] = 8;
    json["moe_intermediate_size"] = row.ffn;
    json["intermediate_size"] = 3 * row.hidden;  // size of dense layers, which these models do not have
    json["decoder_sparse_step"] = 1;
    json["mlp_only_layers"] = base::Json::array();
  } else if (type == "deepseek_v3") {
    const std::pair<const char*, int> numbers[] = {
        {"q_lora_rank", 1536},           {"kv_lora_rank", 512},     {"qk_nope_head_dim", 128},
        {"qk_rope_head_dim", 64},        {"v_head_dim", 128},       {"n_shared_experts", 1},
        {"moe_intermediate_size", 2048}, {"moe_layer_freq", 1},     {"first_k_dense_replace", 3},
        {"num_nextn_predict_layers", 1}, {"num_experts_per_tok", 8}};
    json["n_routed_experts"] = row.experts;
    for (const auto& [key, value] : numbers) json[key] = value;
  }
  if (row.fp8) {
    json["quantization_config"] = {
        {"activation_scheme", "dynamic"}, {"fmt", "e4m3"}, {"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  }
}

base::Json config_json(const Row& row) {
  base::Json json;
  const std::string_view type = row.type;
  json["architectures"] = {architecture(type)};
  json["model_type"] = row.type;
  json["vocab_size"] = row.vocab;
  if (type == "gpt2") {
    json["n_embd"] = row.hidden;
    json["n_head"] = row.heads;
    json["n_inner"] = nullptr;
    json["n_layer"] = row.layers;
    json["n_positions"] = 1024;
  } else {
    json["hidden_size"] = row.hidden;
    json["intermediate_size"] = row.ffn;
    json["num_hidden_layers"] = row.layers;
    json["num_attention_heads"] = row.heads;
    json["num_key_value_heads"] = row.kv_heads;
    if (row.head_dim != 0) json["head_dim"] = row.head_dim;
  }
  add_experts(row, json);
  json["tie_word_embeddings"] = row.tied;
  json["torch_dtype"] = row.dtype;
  return json;
}

}  // namespace

Model model_from_config(std::string_view config_json, std::optional<std::uint64_t> layers) {
  const Config config(config_json);
  const std::string model_type = config.text("model_type", "");
  for (const Family& family : kFamilies) {
    if (family.model_type != model_type || !is_known_quantization(config)) continue;
    return family.build(config, layers ? *layers : config.count(family.layers_key));
  }
  Model unknown;
  unknown.family = "unknown";
  return unknown;
}

Model model_by_name(std::string_view name, std::optional<std::uint64_t> layers) {
  return model_from_config(config_of(name), layers);
}

std::optional<ShardRule> rule_of(const Model& model, std::string_view tensor_name) {
  if (!model.rules) return std::nullopt;
  const auto found = model.rules->by_name.find(tensor_name);
  if (found == model.rules->by_name.end()) return std::nullopt;
  return found->second;
}

std::string_view base_name(std::string_view name) { return name.substr(0, name.rfind('/')); }

std::string_view parameter_of(const Model& model, std::string_view name) {
  if (!model.rules) return {};
  const auto known = [&](std::string_view text) { return model.rules->by_name.contains(text); };
  return known_part_of(base_name(name), known);
}

std::vector<SectionTensors> training_state(const Model& model) {
  std::vector<SectionTensors> sections{{"model", model.tensors}, {"master_weights", {}}, {"optimizer", {}}};
  for (const Tensor& tensor : model.tensors) {
    if (tensor.name.ends_with(kScaleSuffix)) continue;
    sections[1].tensors.push_back({tensor.name, DType::kF32, tensor.shape});
    for (const char* role : {"/moment1_0", "/moment2_0"}) {
      sections[2].tensors.push_back({tensor.name + role, DType::kF32, tensor.shape});
    }
  }
  return sections;
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.name);
  return names;
}

std::string config_of(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return config_json(row).dump({.indent = 2}) + "\n";
  }
  throw Error(ErrorKind::kUsage,
              fmt::format("unknown model '{}'; known: {}", base::printable(name), base::joined(model_names())));
}

}  // namespace cairn::shard
