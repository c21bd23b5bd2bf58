#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "cairn/error.hpp"
#include "fuzz_checks.hpp"
#include "fuzz_entry.hpp"
#include "shard/box_math.hpp"
#include "shard/layout.hpp"
#include "shard/model.hpp"
#include "shard/name_pattern.hpp"
#include "shard/shard_map.hpp"

namespace cairn::fuzz {
namespace {

using namespace cairn::shard;

constexpr std::string_view kConfig =
    R"({"model_type": "mixtral", "vocab_size": 64, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 2,
        "num_experts_per_tok": 2, "tie_word_embeddings": false, "torch_dtype": "float32"})";

/// Requires that every box lies inside its tensor, and that the tensors ascend.
void check_held(const ShardMap& map, int rank) {
  std::int64_t last = -1;
  for (const HeldTensor& held : map.held_by(rank)) {
    require(held.tensor > last && held.tensor < map.tensors().size(), "held tensors must ascend");
    last = held.tensor;
    const auto& shape = map.tensors()[held.tensor].shape;
    for (const Box& box : held.boxes) {
      require(box.offset.size() == shape.size() && box.shape.size() == shape.size(), "a box must have the rank");
      for (std::size_t dim = 0; dim < shape.size(); ++dim) {
        require(box.offset[dim] <= shape[dim] && box.shape[dim] <= shape[dim] - box.offset[dim],
                "a box must lie inside of its tensor");
      }
    }
  }
}

/// Binds the layout to a few tensors of a state, with their family and as an unknown model.
void bind(const Layout& layout) {
  static const Model known = model_from_config(kConfig);
  static const std::vector<std::string> sections{"model", "model", "model", "optimizer", "optimizer", "master_weights"};
  static const std::vector<Tensor> tensors{
      {"model.embed_tokens.weight", DType::kF32, {64, 16}},
      {"model.layers.0.self_attn.q_proj.weight", DType::kF32, {16, 16}},
      {"model.layers.1.block_sparse_moe.experts.1.w2.weight", DType::kF32, {16, 24}},
      {"model.layers.1.self_attn.o_proj.weight/moment1_0", DType::kF32, {16, 16}},
      {"optim.step", DType::kI64, {}},
      {"model.layers.0.input_layernorm.weight", DType::kF32, {16}}};
  for (const bool is_known : {true, false}) {
    refusal_of(
        [&] {
          const ShardMap map(layout, is_known ? known : Model{}, sections, tensors);
          check_held(map, 0);
          check_held(map, layout.world_size() - 1);
        },
        {ErrorKind::kUsage});
  }
}

void feed_layout(std::string_view input) {
  Layout layout;
  if (refusal_of([&] { layout = Layout::from_text(input); }, {ErrorKind::kUsage})) return;
  require(layout.world_size() >= 1, "a layout must have ranks");
  require(Layout::from_text(layout.text()).world_size() == layout.world_size(), "a layout must survive as text");
  if (layout.world_size() <= 4096) bind(layout);
}

/// Whether a configuration has more than 100 layers or experts, which would take up to a second and test nothing new.
bool is_large(std::string_view config) {
  constexpr std::uint64_t kMost = 100;
  try {
    const base::Json json = base::Json::parse(config, "config", {.dialect = base::JsonDialect::kPython});
    for (const char* key : {"num_hidden_layers", "n_layer", "num_nextn_predict_layers", "n_routed_experts",
                            "num_local_experts", "num_experts"}) {
      const base::Json* count = json.find(key);
      if (count != nullptr && count->is_number_unsigned() && count->whole_number() > kMost) return true;
    }
  } catch (const Error&) {  // the parser under test has to report it
  }
  return false;
}

void feed_config(std::string_view input) {
  if (is_large(input)) return;
  Model model;
  if (refusal_of([&] { model = model_from_config(input); }, {ErrorKind::kFormat})) return;
  for (const Tensor& tensor : model.tensors) {
    require(elements_of(tensor.shape) <= std::uint64_t{1} << 62, "the size of a tensor must be bounded");
    require(rule_of(model, tensor.name).has_value(), "a family must know its own names");
  }
  if (model.tensors.size() < 1000) (void)training_state(model);
}

/// Feeds the first line as a pattern, and the whole input as a tensor name of a known and of an unknown model.
void feed_names(std::string_view input) {
  static const Model known = model_from_config(kConfig);
  const std::string_view line = input.substr(0, input.find('\n'));
  refusal_of([&] { (void)NamePattern(line).match(input); }, {ErrorKind::kUsage});
  const std::string_view parameter = parameter_of(known, input);
  require(input.find(parameter) != std::string_view::npos, "a parameter must be a part of the name");
  const ShardMap map(Layout::parse("tp=2,uneven"), Model{}, {"model", "optimizer"},
                     {{std::string(line), DType::kF32, {4, 2}}, {std::string(input), DType::kF32, {4, 2}}});
  check_held(map, 1);
}

}  // namespace

void feed_all_parsers(std::span<const std::byte> input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  feed_layout(text);
  feed_config(text);
  feed_names(text);
}

}  // namespace cairn::fuzz
