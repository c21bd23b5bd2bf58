// Builds, fills and checks a made-up state.
#include "bench/demo_state.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/json.hpp"
#include "bench/demo_values.hpp"
#include "cairn/error.hpp"
#include "format/safetensors.hpp"
#include "shard/box_math.hpp"

namespace cairn::bench {
namespace {

std::string config_with_layers(const std::string& config, std::optional<std::uint64_t> layers) {
  if (!layers) return config;
  auto json = base::Json::parse(config, "config.json");
  for (const char* key : {"num_hidden_layers", "n_layer"}) {
    if (json.contains(key)) json[key] = *layers;
  }
  return json.dump({.indent = 2}) + "\n";
}

DemoState state_of(shard::Model model, std::string config) {
  DemoState state;
  state.model = std::move(model);
  state.config = std::move(config);
  for (shard::SectionTensors& section : shard::training_state(state.model)) {
    for (shard::TensorSpec& tensor : section.tensors) {
      state.bytes += format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name);
      state.sections.push_back(section.section);
      state.tensors.push_back(std::move(tensor));
    }
  }
  if (state.tensors.empty()) throw Error(ErrorKind::kUsage, "this model has no tensors that Cairn knows; give --model");
  return state;
}

}  // namespace

DemoState demo_state_by_name(const std::string& model_name, std::optional<std::uint64_t> layers) {
  shard::Model model = shard::model_by_name(model_name, layers);
  return state_of(std::move(model), config_with_layers(shard::config_of(model_name), layers));
}

DemoState demo_state_of_config(const std::string& config, std::optional<std::uint64_t> layers) {
  shard::Model model = shard::model_from_config(config, layers);
  return state_of(std::move(model), config_with_layers(config, layers));
}

std::uint64_t bytes_of(const DemoState& state, const shard::HeldTensor& held) {
  return shard::elements_of(held.boxes) * bits_of(state.tensors[held.tensor].dtype) / 8;
}

HeldState::HeldState(const DemoState& state, const shard::ShardMap& map, int rank)
    : HeldState(state, map.held_by(rank)) {
  own_ = std::make_unique_for_overwrite<std::byte[]>(bytes());
  memory_ = {own_.get(), bytes()};
}

HeldState::HeldState(const DemoState& state, const shard::ShardMap& map, int rank, RankMemory& memory)
    : HeldState(state, map.held_by(rank)) {
  memory_ = memory.take(bytes());
}

HeldState::HeldState(const DemoState& state, std::vector<shard::HeldTensor> held)
    : state_(state), held_(std::move(held)), begins_{0} {
  for (const shard::HeldTensor& part : held_) begins_.push_back(begins_.back() + bytes_of(state_, part));
}

std::span<std::byte> HeldState::memory_of(std::size_t held_index) {
  return memory_.subspan(begins_[held_index], begins_[held_index + 1] - begins_[held_index]);
}

void HeldState::overwrite() { std::ranges::fill(memory_, std::byte{0xa5}); }

void HeldState::fill() {
  for (std::size_t h = 0; h < held_.size(); ++h) {
    const shard::TensorSpec& tensor = state_.tensors[held_[h].tensor];
    const DemoValues values(state_.sections[held_[h].tensor], tensor.name, tensor.dtype);
    std::span<std::byte> rest = memory_of(h);
    for (const Box& box : held_[h].boxes) {
      const std::uint64_t bytes = shard::elements_of(box) * values.element_bytes();
      fill_box(values, tensor.shape, box, rest.first(bytes));
      rest = rest.subspan(bytes);
    }
  }
}

HeldState::Comparison HeldState::compare() const {
  Comparison out;
  for (std::size_t h = 0; h < held_.size(); ++h) {
    const shard::TensorSpec& tensor = state_.tensors[held_[h].tensor];
    const DemoValues values(state_.sections[held_[h].tensor], tensor.name, tensor.dtype);
    const std::byte* at = memory_.data() + begins_[h];
    for (const Box& box : held_[h].boxes) {
      const std::uint64_t bytes = shard::elements_of(box) * values.element_bytes();
      const auto element = check_box(values, tensor.shape, box, {at, bytes});
      if (element && !out.first) out.first = {held_[h].tensor, *element};
      at += bytes;
      out.bytes += bytes;
    }
    if (begins_[h + 1] != begins_[h]) out.tensors.push_back(held_[h].tensor);
  }
  return out;
}

}  // namespace cairn::bench
