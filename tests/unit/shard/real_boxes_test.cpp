// Boxes that ranks of real frameworks held (PyTorch FSDP2, HSDP and TP through DCP; MindSpore Transformers), compared
// with the layouts' boxes. Every test counts its comparisons.
#include <gtest/gtest.h>

#include <fmt/core.h>

#include <algorithm>

#include "layout_data.hpp"

namespace cairn::shard {
namespace {

using Json = nlohmann::ordered_json;

// ---- DCP: FSDP2, HSDP, TP -----------------------------------------------------------------------------------------

struct DcpCase {
  const char* name;
  const char* layout;
  int compared;  // (rank, tensor) pairs, counting exp_avg, exp_avg_sq and master of every parameter
};

class Dcp : public testing::TestWithParam<DcpCase> {};

TEST_P(Dcp, HeldBoxes) {
  const Json sample = read_json(std::string("dcp/") + GetParam().name + ".json");
  const Model model = model_from_config(sample_config(sample["config"]));
  const Layout layout = Layout::from_text(GetParam().layout);
  State state;
  for (const auto& [name, tensor] : sample["tensors"].items()) {
    const auto shape = tensor[1].get<Shape>();
    const bool is_state = name.starts_with("optim.");
    state.add(is_state ? "optimizer" : "model", name, shape, *dtype_from_name(tensor[0].get<std::string>()));
    if (is_state) continue;
    for (const char* role : {"exp_avg", "exp_avg_sq", "master"})
      state.add("optimizer", "optim." + name + "." + role, shape);
  }
  const ShardMap map = state.bind(layout, model);
  EXPECT_EQ(map.notes(), std::vector<std::string>{});
  int compared = 0;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const auto held = held_by_name(map, state.sections, rank);
    EXPECT_EQ(held.size(), state.tensors.size());
    for (const auto& [name, by_rank] : sample["held"].items()) {
      ASSERT_EQ(by_rank.size(), static_cast<std::size_t>(layout.world_size()));
      std::vector<Box> expected;
      for (const Json& pair : by_rank[static_cast<std::size_t>(rank)]) expected.push_back(box(pair));
      if (name.starts_with("optim.")) {
        EXPECT_EQ(held.at("optimizer:" + name), expected) << name << " rank " << rank;
        ++compared;
        continue;
      }
      EXPECT_EQ(held.at("model:" + name), expected) << name << " rank " << rank;
      for (const char* role : {"exp_avg", "exp_avg_sq", "master"}) {
        EXPECT_EQ(held.at("optimizer:optim." + name + "." + role), expected) << name << " rank " << rank;
      }
      compared += 4;
    }
  }
  EXPECT_EQ(compared, GetParam().compared);
}

// DTensor's tensor parallelism alone: torch.chunk, written as JSON rules and as the short form with fsdp=1.
constexpr const char* kTensorParallelJson = R"({
  "mesh": [["tp", 4]],
  "rules": [
    {"match": ["*norm.weight", "*.step"]},
    {"match": ["*o_proj.weight", "*down_proj.weight"], "cuts": [{"dim": 1, "axis": "tp", "chunk": "torch"}]},
    {"match": "*", "cuts": [{"dim": 0, "axis": "tp", "chunk": "torch"}]}
  ]
})";

INSTANTIATE_TEST_SUITE_P(
    Samples, Dcp,
    testing::Values(DcpCase{"fsdp2_1d", "fsdp=4", 540}, DcpCase{"fsdp2_tp", "fsdp=2,tp=2", 540},
                    DcpCase{"fsdp2_tp_clash", "fsdp=3,tp=2", 450}, DcpCase{"hf_consolidated", "fsdp=4", 432},
                    DcpCase{"hf_sharded", "fsdp=4", 432}, DcpCase{"hf_sharded_2d", "fsdp=2,tp=2", 300},
                    DcpCase{"hsdp", "rep=2,fsdp=2", 300}, DcpCase{"tp_torchsave", "fsdp=1,tp=4", 300},
                    DcpCase{"tp_torchsave", kTensorParallelJson, 300}, DcpCase{"uneven", "fsdp=4", 620}),
    [](const auto& test) { return fmt::format("{}_{}", test.param.name, test.index); });

// ---- MindSpore Transformers ---------------------------------------------------------------------------------------

// Layouts of the samples: tp cuts dimension 0 of column-parallel and dimension 1 of row-parallel weights; with `zero`,
// dp then also cuts dimension 0 (MindSpore's parallel optimizer).
std::string mindformers_layout(const std::string& mesh, bool zero, bool stages) {
  const char* dp = zero ? R"(, {"dim": 0, "axis": "dp"})" : "";
  return fmt::format(R"({{
    "mesh": {mesh}, {stages}
    "rules": [
      {{"match": ["*input_layernorm.weight"] , "cuts": []}},
      {{"match": ["*embedding.word_embeddings.weight"], {first} "cuts": [{{"dim": 0, "axis": "tp"}}{dp}]}},
      {{"match": ["*output_layer.weight"], {last} "cuts": [{{"dim": 0, "axis": "tp"}}{dp}]}},
      {{"match": "*final_layernorm.weight", {last} "cuts": []}},
      {{"match": ["*linear_qkv.weight", "*linear_fc1.weight"], "cuts": [{{"dim": 0, "axis": "tp"}}{dp}]}},
      {{"match": ["*linear_proj.weight", "*linear_fc2.weight", "*eh_proj.weight"],
        "cuts": [{{"dim": 1, "axis": "tp"}}{dp}]}},
      {{"match": "*mtp*hnorm.weight", "cuts": [{{"dim": 0, "axes": ["dp", "tp"]}}]}},
      {{"match": ["global_step", "learning_rate"]}}
    ], "otherwise": "error"}})",
                     fmt::arg("mesh", mesh), fmt::arg("dp", dp),
                     fmt::arg("stages", stages ? R"("stages": {"axis": "pp", "layers": [[0], [1]]},)" : ""),
                     fmt::arg("first", stages ? R"("only": {"pp": [0]},)" : ""),
                     fmt::arg("last", stages ? R"("only": {"pp": [1]},)" : ""));
}

struct MindformersCase {
  const char* name;
  const char* mesh;
  bool zero;
  bool stages;
  int compared;
};

class Mindformers : public testing::TestWithParam<MindformersCase> {};

TEST_P(Mindformers, HeldBoxes) {
  const auto& param = GetParam();
  const Json sample = read_json(std::string("mindformers/") + param.name + ".json");
  std::string text = mindformers_layout(param.mesh, param.zero, param.stages);
  if (param.stages) {
    for (std::size_t at = 0; (at = text.find("\"*linear_", at)) != std::string::npos;)
      text.insert(at + 1, "*layers.{layer}."), at += 20;
    text.insert(text.find("\"*input_") + 1, "*layers.{layer}.");
  }
  if (std::string(param.mesh).find("\"dp\"") == std::string::npos) {
    text.replace(text.find(R"(["dp", "tp"])"), 12, R"(["tp"])");
  }
  const Layout layout = Layout::from_json(text);
  State state;
  for (const auto& [name, tensor] : sample["tensors"].items()) {
    state.add(name.starts_with("adam_") ? "optimizer" : "model", name, tensor["shape"].get<Shape>());
  }
  const ShardMap map = state.bind(layout, Model{});
  int compared = 0;
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    std::map<std::string, std::vector<Box>> expected;
    for (std::size_t i = 0; i < state.tensors.size(); ++i) {
      const Json& ranks = sample["tensors"][state.tensors[i].name]["ranks"];
      const auto found = ranks.find(std::to_string(rank));
      if (found != ranks.end()) expected[state.sections[i] + ":" + state.tensors[i].name] = {box(*found)};
    }
    EXPECT_EQ(held_by_name(map, state.sections, rank), expected) << "rank " << rank;
    compared += static_cast<int>(expected.size());
  }
  EXPECT_EQ(compared, param.compared);
}

constexpr const char* kTp = R"([["tp", 2]])";
constexpr const char* kDpTp = R"([["dp", 2], ["tp", 2]])";
constexpr const char* kPpTp = R"([["pp", 2], ["tp", 2]])";

INSTANTIATE_TEST_SUITE_P(Samples, Mindformers,
                         testing::Values(MindformersCase{"legacy-dp2tp2-ckpt", kDpTp, false, false, 32},
                                         MindformersCase{"legacy-tp2-safetensors", kTp, false, false, 16},
                                         MindformersCase{"r2-tp2-model-only-async", kTp, false, false, 16},
                                         MindformersCase{"r2-tp2-opt", kTp, false, false, 36},
                                         MindformersCase{"r2-v190-tp2", kTp, false, false, 36},
                                         MindformersCase{"r4-dp2tp2-bf16", kDpTp, false, false, 112},
                                         MindformersCase{"r4-pp2tp2", kPpTp, false, true, 60},
                                         MindformersCase{"r4-v210-dp2tp2", kDpTp, false, false, 72},
                                         MindformersCase{"r4-zero-2d", kDpTp, true, false, 88}),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace cairn::shard
