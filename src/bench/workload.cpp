#include "bench/workload.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/json.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/safetensors.hpp"

namespace cairn::bench {
namespace {

const std::vector<std::string> kSections = {"model", "optimizer", "master_weights"};
constexpr std::uint64_t kFewLayers = 4;
constexpr std::uint64_t kFfnUnit = 64;  // what tensor parallelism up to 64 divides
constexpr std::uint64_t kHeadUnit = 2;

double parameters_of(const ModelShape& shape) {
  const auto real = [](std::uint64_t n) { return static_cast<double>(n); };
  const double kv = real(shape.hidden) * real(shape.kv_heads) / real(shape.heads);
  const double layer = 2 * real(shape.hidden) * (real(shape.hidden) + kv) + 3 * real(shape.hidden) * real(shape.ffn);
  return real(shape.layers) * layer + 2 * real(shape.vocab) * real(shape.hidden);
}

std::uint64_t scaled(std::uint64_t value, double factor, std::uint64_t unit) {
  const double units = std::round(static_cast<double>(value) * factor / static_cast<double>(unit));
  return std::max<std::uint64_t>(static_cast<std::uint64_t>(units), 1) * unit;
}

ModelShape scaled_shape(const ModelShape& shape, double fraction) {
  const std::uint64_t few = std::min(shape.layers, kFewLayers);
  ModelShape out = shape;
  out.layers = std::clamp(scaled(shape.layers, fraction, 1), few, shape.layers);
  // What the layers do not give, the widths must: a layer grows with their square, an embedding with one of them.
  const double wanted = fraction * static_cast<double>(shape.layers) / static_cast<double>(out.layers);
  const double width = out.layers > few ? 1 : std::min(1.0, std::sqrt(wanted));
  if (width < 1) {
    const std::uint64_t head = scaled(shape.hidden / shape.heads, width, kHeadUnit);
    out.hidden = head * shape.heads;
    out.ffn = scaled(shape.ffn, width, kFfnUnit);
  }
  out.vocab = std::min(shape.vocab, scaled(shape.vocab, fraction / width, kFfnUnit));
  return out;
}

std::string config_of(const ModelShape& shape) {
  const base::Json config = {{"model_type", "llama"},
                             {"architectures", {"LlamaForCausalLM"}},
                             {"hidden_size", shape.hidden},
                             {"intermediate_size", shape.ffn},
                             {"num_hidden_layers", shape.layers},
                             {"num_attention_heads", shape.heads},
                             {"num_key_value_heads", shape.kv_heads},
                             {"head_dim", shape.hidden / shape.heads},
                             {"vocab_size", shape.vocab},
                             {"tie_word_embeddings", false},
                             {"torch_dtype", "bfloat16"}};
  return config.dump({.indent = 2}) + "\n";
}

std::string note_of(const ModelShape& full, const ModelShape& shape, double full_bytes) {
  return fmt::format("scaled from {}: {} of {} layers, width {} of {}, vocabulary {} of {}",
                     base::format_size(static_cast<std::uint64_t>(full_bytes)), shape.layers, full.layers, shape.hidden,
                     full.hidden, shape.vocab, full.vocab);
}

}  // namespace

std::vector<std::string> parse_sections(std::string_view text) {
  if (text == "all") return kSections;
  std::vector<std::string> sections;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string name(text.substr(at, comma - at));
    at = comma + 1;
    if (std::find(kSections.begin(), kSections.end(), name) == kSections.end()) {
      throw Error(ErrorKind::kUsage, fmt::format("--sections: '{}' is none of model, optimizer, master_weights, all",
                                                 base::printable(name)));
    }
    if (std::find(sections.begin(), sections.end(), name) == sections.end()) sections.push_back(name);
  }
  return sections;
}

double bytes_of_parameter(const std::vector<std::string>& sections) {
  double bytes = 0;
  for (const std::string& section : sections) bytes += section == "model" ? 2 : section == "optimizer" ? 8 : 4;
  return bytes;
}

void keep_sections(DemoState& state, const std::vector<std::string>& sections) {
  DemoState kept;
  kept.model = std::move(state.model);
  kept.config = std::move(state.config);
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    if (std::find(sections.begin(), sections.end(), state.sections[i]) == sections.end()) continue;
    shard::TensorSpec& tensor = state.tensors[i];
    kept.bytes += format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
    kept.sections.push_back(std::move(state.sections[i]));
    kept.tensors.push_back(std::move(tensor));
  }
  state = std::move(kept);
}

Workload scaled_workload(std::string name, const ModelShape& shape, std::uint64_t bytes,
                         const std::vector<std::string>& sections) {
  const double full_bytes = parameters_of(shape) * bytes_of_parameter(sections);
  const ModelShape small = scaled_shape(shape, std::min(1.0, static_cast<double>(bytes) / full_bytes));
  Workload out{std::move(name), note_of(shape, small, full_bytes),
               demo_state_of_config(config_of(small), std::nullopt)};
  keep_sections(out.state, sections);
  return out;
}

Workload sized_workload(std::uint64_t bytes, const std::vector<std::string>& sections) {
  for (const ModelShape& shape : {kLlama8B, kLlama70B, kLlama405B}) {
    if (parameters_of(shape) * bytes_of_parameter(sections) < static_cast<double>(bytes)) continue;
    return scaled_workload("size " + base::format_size(bytes), shape, bytes, sections);
  }
  throw Error(ErrorKind::kUsage,
              fmt::format("--size {} is larger than Llama 3 405B, the largest model here; use --mlperf 1t",
                          base::format_size(bytes)));
}

Workload layered_workload(const std::string& model, std::uint64_t bytes, const std::vector<std::string>& sections) {
  const auto with_layers = [&](std::uint64_t layers) {
    DemoState state = demo_state_by_name(model, layers);
    keep_sections(state, sections);
    return state;
  };
  const auto one = static_cast<double>(with_layers(1).bytes);
  const double layer = static_cast<double>(with_layers(2).bytes) - one;
  const auto layers =
      static_cast<std::uint64_t>(std::max(1.0, 1 + std::round((static_cast<double>(bytes) - one) / layer)));
  return {model, fmt::format("{} layers, for {}", layers, base::format_size(bytes)), with_layers(layers)};
}

}  // namespace cairn::bench
