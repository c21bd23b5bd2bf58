#include "bench/workload.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "cairn/tensor.hpp"
#include "format/safetensors.hpp"

namespace cairn::bench {
namespace {

const std::vector<std::string> kSections = {"model", "optimizer", "master_weights"};
constexpr std::uint64_t kFewLayers = 4;
constexpr std::uint64_t kFfnUnit = 64;  // divisible by tensor parallelism up to 64
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
  // Widths are reduced after layers: a layer grows with the square of the width, an embedding with the width.
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

constexpr std::uint64_t kGiB = 1ULL << 30;
constexpr double kBytesOfParameter = 14;  // in all sections

struct Set {
  const char* name;
  ModelShape shape;
  int ranks;  // ranks in the closed division
  int tensor_parallel;
  bool is_sharded;           // ZeRO-3; the others have pipeline stages
  std::uint64_t size_bytes;  // model and optimizer, as MLPerf's tool counts them
};

// The 1T model's width of 25872 is not a multiple of its 192 heads; 25728 is the nearest with an even head size.
constexpr std::array<Set, 4> kSets = {{
    {"8b", kLlama8B, 8, 1, true, (15 + 90) * kGiB},
    {"70b", kLlama70B, 64, 8, true, (130 + 781) * kGiB},
    {"405b", kLlama405B, 512, 8, false, (755 + 4533) * kGiB},
    {"1t", {128, 25728, 192, 32, 98304, 128256}, 1024, 8, false, (2571 + 15426) * kGiB},
}};

const Set& set_of(const std::string& name) {
  for (const Set& set : kSets) {
    if (name == set.name) return set;
  }
  throw Error(ErrorKind::kUsage,
              fmt::format("--mlperf: '{}' is none of {}", base::printable(name), base::joined(mlperf_names())));
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
    Tensor& tensor = state.tensors[i];
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
  const double wanted = std::max(1.0, 1 + std::round((static_cast<double>(bytes) - one) / layer));
  if (wanted > static_cast<double>(kMostLayers)) {
    throw Error(ErrorKind::kUsage, fmt::format("{} of {} would be {:.0f} layers, more than {}; give a smaller size",
                                               base::format_size(bytes), base::printable(model), wanted, kMostLayers));
  }
  const auto layers = static_cast<std::uint64_t>(wanted);
  return {model, fmt::format("{} layers, for {}", layers, base::format_size(bytes)), with_layers(layers)};
}

std::vector<std::string> mlperf_names() {
  std::vector<std::string> names;
  for (const Set& set : kSets) names.emplace_back(set.name);
  return names;
}

Workload mlperf_workload(const std::string& name, int ranks, std::optional<std::uint64_t> bytes,
                         const std::vector<std::string>& sections) {
  const Set& set = set_of(name);
  const std::uint64_t per_rank = set.size_bytes / static_cast<std::uint64_t>(set.ranks);
  const double all = static_cast<double>(per_rank) * ranks * bytes_of_parameter(sections) / kBytesOfParameter;
  const std::uint64_t wanted = bytes.value_or(static_cast<std::uint64_t>(all));
  Workload out = scaled_workload("mlperf " + name, set.shape, wanted, sections);
  out.note = fmt::format("MLPerf Storage Llama 3 {} has {} on {} ranks, {} a rank; here {} on {} ranks: {}", name,
                         base::format_size(set.size_bytes), set.ranks, base::format_size(per_rank),
                         base::format_size(out.state.bytes), ranks, out.note);
  return out;
}

std::string mlperf_layout(const std::string& name, int ranks) {
  const Set& set = set_of(name);
  int tensor_parallel = set.tensor_parallel;
  while (ranks % tensor_parallel != 0) tensor_parallel /= 2;
  const int rest = ranks / tensor_parallel;
  if (set.is_sharded) {
    return tensor_parallel == 1 ? fmt::format("fsdp={}", rest) : fmt::format("fsdp={},tp={}", rest, tensor_parallel);
  }
  return fmt::format("tp={},pp={}", tensor_parallel, rest);
}

}  // namespace cairn::bench
