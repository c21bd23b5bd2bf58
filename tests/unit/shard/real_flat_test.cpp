// Flat buffers of real frameworks (PyTorch FSDP1, DeepSpeed ZeRO, Megatron-core's distributed optimizer):
// every piece, pad and bucket compared with the pure functions, and the boxes of the pieces compared with layouts.
// Every test counts its comparisons.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>

#include "flat_pads.hpp"
#include "layout_data.hpp"
#include "shard/chunk.hpp"
#include "shard/flat_layout.hpp"

namespace cairn::shard {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFsdp1Fill = 42;  // value of the padding with use_orig_params

// Flat ranges [begin, end) of a tensor that boxes cover, in their order, joined where they touch.
std::vector<Range> flat_ranges(const Shape& shape, const std::vector<Box>& boxes) {
  std::vector<Range> out;
  for (const Box& b : boxes) {
    // A box of a flat range is whole below its first cut dimension, so its elements are consecutive.
    const std::uint64_t begin = flat_index(shape, b.offset);
    const std::uint64_t end = begin + elements_of(b);
    if (!out.empty() && out.back().end == begin) {
      out.back().end = end;
    } else {
      out.push_back({begin, end});
    }
  }
  return out;
}

// ---- FSDP1 --------------------------------------------------------------------------------------------------------

class Fsdp1 : public testing::TestWithParam<std::pair<const char*, int>> {};

// Parameters of a wrapped module, in model order: those of a layer, or, if `module` is empty, all outside layers.
std::vector<Tensor> module_tensors(const Model& model, const std::string& module) {
  std::vector<Tensor> out;
  for (const Tensor& tensor : model.tensors) {
    const bool in_layer = tensor.name.starts_with("model.layers.");
    if (module.empty() ? !in_layer : tensor.name.starts_with(module + ".")) out.push_back(tensor);
  }
  return out;
}

TEST_P(Fsdp1, PiecesPadsAndBoxes) {
  const Json sample = read_json(std::string("fsdp1/") + GetParam().first + ".json");
  std::string config = sample_config(sample["config"]);
  config.replace(config.find("bfloat16"), 8, "float32");
  const Model model = model_from_config(config);
  const auto world = sample["world"].get<std::uint64_t>();
  const bool orig = sample["use_orig_params"].get<bool>();
  const State state = state_of(model);
  const ShardMap map =
      state.bind(Layout::from_json(fmt::format(
                     R"({{"mesh": [["dp", {}]], "rules": [{{"match": "*", "flat": {{"kind": "fsdp1", "axis": "dp",
          "use_orig_params": {}, "groups": [["model.layers.{{layer}}.*"], ["*"]]}}}}]}})",
                     world, orig)),
                 model);
  int compared = 0;
  std::uint64_t padding = 0;
  for (std::uint64_t rank = 0; rank < world; ++rank) {
    const auto held = held_by_name(map, state.sections, static_cast<int>(rank));
    std::size_t held_pieces = 0;
    for (const Json& module : sample["ranks"][rank]["modules"]) {
      const auto tensors = module_tensors(model, module["module"].get<std::string>());
      std::vector<std::uint64_t> numels;
      for (const Tensor& tensor : tensors) numels.push_back(elements_of(tensor.shape));
      const FlatBuffer buffer = fsdp1_buffer(numels, world, orig ? 4 : 0);
      EXPECT_EQ(local_elements(buffer, world), module["local_numel"].get<std::uint64_t>());
      const auto pieces = pieces_of(buffer, numels, world, rank);
      ASSERT_EQ(pieces.size(), module["pieces"].size());
      for (std::size_t i = 0; i < pieces.size(); ++i, ++compared) {
        const Json expected{tensors[pieces[i].tensor].name, pieces[i].begin, pieces[i].end, pieces[i].at};
        EXPECT_EQ(expected, module["pieces"][i]) << "rank " << rank;
        const Tensor& tensor = tensors[pieces[i].tensor];
        for (const char* name : {"model:%", "master_weights:%", "optimizer:%/moment1_0", "optimizer:%/moment2_0"}) {
          std::string key = name;
          key.replace(key.find('%'), 1, tensor.name);
          EXPECT_EQ(flat_ranges(tensor.shape, held.at(key)), (std::vector<Range>{{pieces[i].begin, pieces[i].end}}))
              << key;
          ++held_pieces;
        }
      }
      std::map<std::uint64_t, int> pads, expected_pads;  // by element
      for (const FlatPad& pad : pads_of(buffer, numels, world, rank)) {
        for (std::uint64_t k = 0; k < pad.count; ++k) pads[pad.at + k] = orig ? kFsdp1Fill : 0;
      }
      for (const Json& pad : module["pads"]) {
        for (std::uint64_t k = 0; k < pad[1]; ++k) expected_pads[pad[0].get<std::uint64_t>() + k] = pad[2];
      }
      EXPECT_EQ(pads, expected_pads) << "rank " << rank;
      padding += pads.size();
    }
    EXPECT_EQ(held.size(), held_pieces);
  }
  EXPECT_EQ(compared, GetParam().second);
  EXPECT_GT(padding, 0U);
}

INSTANTIATE_TEST_SUITE_P(Samples, Fsdp1, testing::Values(std::pair{"flat_params", 33}, std::pair{"orig_params", 36}),
                         [](const auto& test) { return test.param.first; });

// ---- DeepSpeed ----------------------------------------------------------------------------------------------------

struct DeepSpeedCase {
  const char* name;
  int compared;  // pieces
};

class DeepSpeed : public testing::TestWithParam<DeepSpeedCase> {};

// Group 1 of the sample with two groups: norms and biases, without weight decay.
bool no_decay(const std::string& name) { return name.ends_with(".bias") || name.ends_with("norm.weight"); }

std::string deepspeed_layout(std::uint64_t world, int stage, bool two_groups) {
  if (!two_groups) return fmt::format("dp={},zero={}", world, stage);
  return fmt::format(R"({{"mesh": [["dp", {}]], "rules": [
      {{"match": "*", "section": "model"}},
      {{"match": "*", "flat": {{"kind": "zero{}", "axis": "dp",
                                "groups": [["*", "!*.bias", "!*norm.weight"], ["*"]]}}}}]}})",
                     world, stage);
}

TEST_P(DeepSpeed, PiecesPaddingAndBoxes) {
  const Json sample = read_json(std::string("deepspeed/") + GetParam().name + ".json");
  const Model model = model_from_config(sample_config(sample["config"]));
  const auto world = sample["world"].get<std::uint64_t>();
  const int stage = sample["stage"];
  const std::size_t groups = sample["ranks"][0]["groups"].size();
  const State state = state_of(model);
  const ShardMap map = state.bind(Layout::from_text(deepspeed_layout(world, stage, groups == 2)), model);
  int compared = 0;
  for (std::uint64_t rank = 0; rank < world; ++rank) {
    const auto held = held_by_name(map, state.sections, static_cast<int>(rank));
    std::size_t held_pieces = 0;
    for (const Json& group : sample["ranks"][rank]["groups"]) {
      std::vector<Tensor> tensors;
      std::vector<std::uint64_t> numels;
      for (const Tensor& tensor : model.tensors) {
        if (groups == 2 && no_decay(tensor.name) != (group["group"] == 1)) continue;
        tensors.push_back(tensor);
        numels.push_back(elements_of(tensor.shape));
      }
      const FlatBuffer buffer = stage == 3 ? zero3_buffer(numels, world)
                                           : zero1_buffer(numels, {world, 2, sample["round_robin"].get<bool>()});
      EXPECT_EQ(local_elements(buffer, world), group["local_numel"].get<std::uint64_t>());
      std::uint64_t padding = 0;
      for (const FlatPad& pad : pads_of(buffer, numels, world, rank)) padding += pad.count;
      EXPECT_EQ(padding, group["padding"].get<std::uint64_t>());
      const auto pieces = pieces_of(buffer, numels, world, rank);
      ASSERT_EQ(pieces.size(), group["pieces"].size());
      for (std::size_t i = 0; i < pieces.size(); ++i, ++compared) {
        const Tensor& tensor = tensors[pieces[i].tensor];
        EXPECT_EQ((Json{tensor.name, pieces[i].begin, pieces[i].end, pieces[i].at}), group["pieces"][i])
            << "rank " << rank;
        for (const char* name : {"master_weights:%", "optimizer:%/moment1_0", "optimizer:%/moment2_0"}) {
          std::string key = name;
          key.replace(key.find('%'), 1, tensor.name);
          EXPECT_EQ(flat_ranges(tensor.shape, held.at(key)), (std::vector<Range>{{pieces[i].begin, pieces[i].end}}))
              << key;
          ++held_pieces;
        }
        if (stage == 3) {
          EXPECT_EQ(held.at("model:" + tensor.name), held.at("master_weights:" + tensor.name));
        }
      }
    }
    // Below stage 3 the model is whole on every rank.
    EXPECT_EQ(held.size(), held_pieces + (stage == 3 ? held_pieces / 3 : model.tensors.size()));
  }
  EXPECT_EQ(compared, GetParam().compared);
}

INSTANTIATE_TEST_SUITE_P(Samples, DeepSpeed,
                         testing::Values(DeepSpeedCase{"zero1", 30}, DeepSpeedCase{"zero2", 29},
                                         DeepSpeedCase{"zero2_groups", 28}, DeepSpeedCase{"zero3", 104}),
                         [](const auto& test) { return test.param.name; });

// ---- Megatron-core ------------------------------------------------------------------------------------------------

class Megatron : public testing::TestWithParam<std::pair<const char*, int>> {};

// tp cuts dimension 0 of column-parallel weights (fc1 in halves) and dimension 1 of row-parallel ones; layers over pp.
constexpr const char* kMegatronJson = R"({{
  "mesh": [["pp", {pp}], ["dp", {dp}], ["tp", {tp}]],
  "stages": {{"axis": "pp", "count": {layers}}},
  "rules": [
    {{"match": "embedding.*", "only": {{"pp": [0]}}, "cuts": [{{"dim": 0, "axis": "tp"}}] {flat} }},
    {{"match": "output_layer.*", "only": {{"pp": [{last}]}}, "cuts": [{{"dim": 0, "axis": "tp"}}] {flat} }},
    {{"match": "decoder.final_layernorm.weight", "only": {{"pp": [{last}]}} {flat} }},
    {{"match": "decoder.layers.{{layer}}.*layernorm.weight" {flat} }},
    {{"match": "decoder.layers.{{layer}}.mlp.linear_fc1.weight",
      "cuts": [{{"dim": 0, "axis": "tp", "parts": 2}}] {flat} }},
    {{"match": ["decoder.layers.{{layer}}.*linear_proj.weight", "decoder.layers.{{layer}}.mlp.linear_fc2.weight"],
      "cuts": [{{"dim": 1, "axis": "tp"}}] {flat} }},
    {{"match": "decoder.layers.{{layer}}.*linear_qkv.*", "cuts": [{{"dim": 0, "axis": "tp"}}] {flat} }}
  ],
  "otherwise": "error"
}})";

TEST_P(Megatron, BoxesBuffersAndOptimizerRanges) {
  const Json sample = read_json(std::string("megatron/") + GetParam().first + ".json");
  const auto dp = sample["dp"].get<std::uint64_t>();
  // The tensors of all ranks, each once, in named_parameters() order within a rank.
  State state;
  for (const Json& rank : sample["ranks"]) {
    for (const Json& param : rank["params"]) {
      const auto name = param["name"].get<std::string>();
      if (std::ranges::find(state.tensors, name, &Tensor::name) != state.tensors.end()) continue;
      state.add("model", name, param["shape"].get<Shape>(), DType::kBF16);
    }
  }
  const auto layout = [&](const char* flat) {
    return Layout::from_json(fmt::format(kMegatronJson, fmt::arg("pp", sample["pp"].get<int>()), fmt::arg("dp", dp),
                                         fmt::arg("tp", sample["tp"].get<int>()), fmt::arg("flat", flat),
                                         fmt::arg("layers", sample["config"]["layers"].get<int>()),
                                         fmt::arg("last", sample["pp"].get<int>() - 1)));
  };
  const ShardMap map = state.bind(layout(""), Model{});
  int compared = 0;
  for (const Json& rank : sample["ranks"]) {
    const Json& c = rank["coord"];
    const int number =
        c["tp"].get<int>() + sample["tp"].get<int>() * (c["dp"].get<int>() + static_cast<int>(dp) * c["pp"].get<int>());
    const auto held = held_by_name(map, state.sections, number);
    EXPECT_EQ(held.size(), rank["params"].size());
    std::vector<std::uint64_t> numels;
    for (const Json& param : rank["params"]) {
      const auto& boxes = held.at("model:" + param["name"].get<std::string>());
      ASSERT_EQ(boxes.size(), param["boxes"].size()) << param["name"];
      std::uint64_t at = 0;
      for (std::size_t i = 0; i < boxes.size(); ++i) {
        EXPECT_EQ(boxes[i], box(param["boxes"][i])) << param["name"];
        EXPECT_EQ(at, param["boxes"][i][2].get<std::uint64_t>());
        at += elements_of(boxes[i]);
      }
      numels.push_back(at);
    }
    const FlatBuffer buffer = megatron_buffer(numels, {dp, 0, 64, 128, {}});
    ASSERT_EQ(buffer.buckets.size(), rank["buckets"].size());
    for (std::size_t b = 0; b < buffer.buckets.size(); ++b) {
      const FlatBucket& bucket = buffer.buckets[b];
      EXPECT_EQ((Json{bucket.begin, bucket.end - bucket.begin, bucket.used_end - bucket.begin}), rank["buckets"][b]);
    }
    std::map<std::uint32_t, FlatPiece> pieces;
    for (const FlatPiece& piece : pieces_of(buffer, numels, dp, c["dp"].get<std::uint64_t>()))
      pieces[piece.tensor] = piece;
    for (std::uint32_t p = 0; p < numels.size(); ++p, ++compared) {
      const Json& range = rank["params"][p]["range"];
      ASSERT_EQ(pieces.contains(p), !range.is_null()) << rank["params"][p]["name"];
      if (range.is_null()) continue;
      const FlatPiece& piece = pieces[p];
      const std::uint64_t size = piece.end - piece.begin;
      const std::uint64_t world = buffer.starts[p] + piece.begin;
      const std::uint64_t in_bucket = world - buffer.buckets[piece.bucket].begin;
      EXPECT_EQ((Json{{piece.begin, piece.end},
                      {world, world + size},
                      {piece.in_bucket, piece.in_bucket + size},
                      {in_bucket, in_bucket + size}}),
                range)
          << rank["params"][p]["name"];
    }
  }
  EXPECT_EQ(compared, GetParam().second);

  // The same through a layout: held boxes are the pieces of the shards.
  const ShardMap flat = state.bind(layout(R"(, "flat": {"kind": "megatron", "axis": "dp"})"), Model{});
  int flat_compared = 0;
  for (const Json& rank : sample["ranks"]) {
    const Json& c = rank["coord"];
    const int number =
        c["tp"].get<int>() + sample["tp"].get<int>() * (c["dp"].get<int>() + static_cast<int>(dp) * c["pp"].get<int>());
    const auto held = held_by_name(flat, state.sections, number);
    const auto whole_shards = held_by_name(map, state.sections, number);
    std::size_t present = 0;
    for (const Json& param : rank["params"]) {
      const std::string key = "model:" + param["name"].get<std::string>();
      ++flat_compared;
      EXPECT_EQ(held.contains(key), !param["range"].is_null());
      if (param["range"].is_null()) continue;
      ++present;
      EXPECT_EQ(held.at(key), slice(whole_shards.at(key), param["range"][0][0], param["range"][0][1]));
    }
    EXPECT_EQ(held.size(), present);
  }
  EXPECT_EQ(flat_compared, GetParam().second);
}

INSTANTIATE_TEST_SUITE_P(Samples, Megatron,
                         testing::Values(std::pair{"tp2_dp2_dpreshard", 68}, std::pair{"tp2_pp2", 34}),
                         [](const auto& test) { return test.param.first; });

}  // namespace
}  // namespace cairn::shard
