// From a config.json to a model, and from tensor names to rules. The families themselves are in families/.
#include "shard/model.hpp"

#include <array>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "shard/dotted_name.hpp"
#include "shard/families/builder.hpp"

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

// FP8 in blocks is the one quantisation whose tensors the families know.
bool is_known_quantization(const Config& config) {
  const auto quantization = config.quantization();
  if (!quantization) return true;
  return quantization->method == "fp8" && quantization->block_rows != 0;
}

constexpr std::string_view kScaleSuffix = "_scale_inv";

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
  for (const TensorSpec& tensor : model.tensors) {
    if (tensor.name.ends_with(kScaleSuffix)) continue;
    sections[1].tensors.push_back({tensor.name, DType::kF32, tensor.shape});
    for (const char* role : {"/moment1_0", "/moment2_0"}) {
      sections[2].tensors.push_back({tensor.name + role, DType::kF32, tensor.shape});
    }
  }
  return sections;
}

}  // namespace cairn::shard
