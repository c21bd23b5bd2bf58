// Short forms bound to models: every element is held, by the expected number of ranks; stages, experts, uneven heads,
// ZeRO, scales, unknown models; and the cost of one call for the largest model.
#include "shard/shard_map.hpp"

#include <gtest/gtest.h>

#include <fmt/core.h>

#include <ctime>
#include <numeric>

#include "layout_data.hpp"
#include "shard/chunk.hpp"

namespace cairn::shard {
namespace {

Model small_llama(int layers = 2, const char* extra = "") {
  return model_from_config(fmt::format(
      R"({{"model_type":"llama","hidden_size":12,"intermediate_size":20,"num_hidden_layers":{},"num_attention_heads":6,
          "num_key_value_heads":2,"vocab_size":22,"torch_dtype":"bfloat16"{}}})",
      layers, extra));
}

// The number of ranks that hold each element, by "section:name".
std::map<std::string, std::vector<int>> holders(const State& state, const ShardMap& map) {
  std::map<std::string, std::vector<int>> out;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    out[state.sections[i] + ":" + state.tensors[i].name].assign(elements_of(state.tensors[i].shape), 0);
  }
  for (int rank = 0; rank < map.layout().world_size(); ++rank) {
    for (const HeldTensor& held : map.held_by(rank)) {
      const Tensor& tensor = map.tensors()[held.tensor];
      auto& counts = out[state.sections[held.tensor] + ":" + tensor.name];
      for (const Box& box : held.boxes) {
        EXPECT_TRUE(fits(box, tensor.shape));
        Shape index = box.offset;
        for (std::uint64_t i = 0; i < elements_of(box); ++i) {
          std::uint64_t rest = i;
          for (std::size_t d = index.size(); d-- > 0; rest /= box.shape[d])
            index[d] = box.offset[d] + rest % box.shape[d];
          ++counts.at(flat_index(tensor.shape, index));
        }
      }
    }
  }
  return out;
}

std::vector<int> times_of(const std::map<std::string, std::vector<int>>& all, const std::string& key) {
  std::vector<int> out = all.at(key);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<Box> held(const Model& model, const char* layout, int rank, const std::string& key) {
  const State state = state_of(model);
  return held_by_name(state.bind(Layout::from_text(layout), model), state.sections, rank).at(key);
}

struct CoverCase {
  const char* layout;
  int model_times, norm_times, state_times,
      state_norm_times;  // numbers of holders of layer 0's up_proj and norm, model and optimizer
};

TEST(ShardMap, EveryElementIsHeldAsOftenAsExpected) {
  const Model model = small_llama();
  const State state = state_of(model);
  const std::vector<CoverCase> cases{
      {"dp=1", 1, 1, 1, 1},
      {"dp=3", 3, 3, 3, 3},
      {"tp=2", 1, 2, 1, 2},
      {"tp=2,pp=2,dp=3", 3, 6, 3, 6},
      {"tp=2,dp=3,zero=1", 3, 6, 1, 2},
      {"tp=2,dp=3,zero=2", 3, 6, 1, 2},
      {"tp=2,dp=3,zero=3", 1, 2, 1, 2},
      {"tp=2,cp=2,dp=2,zero=1", 4, 8, 1, 2},
      {"tp=2,cp=2,dp=2", 4, 8, 4, 8},
      {"fsdp=5", 1, 1, 1, 1},
      {"fsdp=3,tp=2", 1, 2, 1, 2},
      {"rep=2,fsdp=3,tp=2", 2, 4, 2, 4},
      {"fsdp=2,pp=2", 1, 1, 1, 1},
      {"tp=4,uneven", 1, 4, 1, 4},
      {"tp=5,pp=2,dp=2,uneven,zero=1", 2, 10, 1, 5},
      {"dp=40,zero=3", 1, 1, 1, 1},
  };
  int checked = 0;
  for (const CoverCase& c : cases) {
    SCOPED_TRACE(c.layout);
    const auto all = holders(state, state.bind(Layout::parse(c.layout), model));
    for (const auto& [key, counts] : all) {
      EXPECT_EQ(std::ranges::count(counts, 0), 0) << key;
      EXPECT_EQ(times_of(all, key).size(), 1U) << key;
      ++checked;
    }
    EXPECT_EQ(times_of(all, "model:model.layers.0.mlp.up_proj.weight"), std::vector<int>{c.model_times});
    EXPECT_EQ(times_of(all, "model:model.layers.0.input_layernorm.weight"), std::vector<int>{c.norm_times});
    EXPECT_EQ(times_of(all, "optimizer:model.layers.0.mlp.up_proj.weight/moment2_0"), std::vector<int>{c.state_times});
    EXPECT_EQ(times_of(all, "master_weights:model.layers.0.input_layernorm.weight"),
              std::vector<int>{c.state_norm_times});
  }
  EXPECT_EQ(checked, 16 * 4 * 21);
}

TEST(ShardMap, Stages) {
  const Model model = small_llama(5);
  const State state = state_of(model);
  const auto layers_on = [&](const char* layout) {
    const ShardMap map = state.bind(Layout::parse(layout), model);
    std::vector<std::string> out;
    for (int rank = 0; rank < map.layout().world_size(); ++rank) {
      std::string layers;
      const auto names = held_by_name(map, state.sections, rank);
      for (int layer = 0; layer < 5; ++layer) {
        if (names.contains(fmt::format("model:model.layers.{}.mlp.up_proj.weight", layer)))
          layers += std::to_string(layer);
      }
      if (names.contains("model:model.embed_tokens.weight")) layers += "E";
      if (names.contains("model:model.norm.weight")) layers += "N";
      if (names.contains("model:lm_head.weight")) layers += "H";
      out.push_back(layers);
    }
    return out;
  };
  using Stages = std::vector<std::string>;
  EXPECT_EQ(layers_on("pp=5"), (Stages{"0E", "1", "2", "3", "4NH"}));
  EXPECT_EQ(layers_on("pp=2,uneven"), (Stages{"012E", "34NH"}));
  EXPECT_EQ(layers_on("pp=2,vpp=2,uneven"), (Stages{"013E", "24NH"}));  // chunks 01 | 2 | 3 | 4
  EXPECT_EQ(layers_on("pp=7,uneven"), (Stages{"0E", "1", "2", "3", "4", "", "NH"}));
  EXPECT_NE(error_of(ErrorKind::kUsage, [&] { (void)layers_on("pp=2"); })
                .find("the 5 layers of the model do not divide by 2"),
            std::string::npos);
  const Model tied = small_llama(2, R"(,"tie_word_embeddings":true)");
  const State tied_state = state_of(tied);
  const ShardMap map = tied_state.bind(Layout::parse("pp=2"), tied);
  EXPECT_TRUE(held_by_name(map, tied_state.sections, 0).contains("model:model.embed_tokens.weight"));
  EXPECT_TRUE(held_by_name(map, tied_state.sections, 1).contains("model:model.embed_tokens.weight"));
  EXPECT_FALSE(held_by_name(map, tied_state.sections, 0).contains("model:model.norm.weight"));
}

TEST(ShardMap, UnevenHeads) {
  const Model model = model_by_name("smollm2-135m", 1);
  const auto rows = [&](int rank, const char* name) {
    std::uint64_t n = 0;
    for (const Box& box :
         held(model, "tp=4,uneven", rank, fmt::format("model:model.layers.0.self_attn.{}.weight", name))) {
      n += box.shape[0];
    }
    return n;
  };
  std::vector<std::uint64_t> q, k;
  for (int rank = 0; rank < 4; ++rank) {
    q.push_back(rows(rank, "q_proj"));
    k.push_back(rows(rank, "k_proj"));
  }
  EXPECT_EQ(q, (std::vector<std::uint64_t>{192, 128, 128, 128}));
  EXPECT_EQ(k, (std::vector<std::uint64_t>{64, 64, 64, 0}));
  EXPECT_TRUE(held(model, "tp=4,uneven", 3, "model:model.layers.0.self_attn.k_proj.weight").empty());
  EXPECT_EQ(held(model, "tp=4,uneven", 3, "model:model.layers.0.self_attn.o_proj.weight"),
            (std::vector<Box>{{{0, 448}, {576, 128}}}));
  // Without `uneven`, the rows are divided, not the heads: 576 rows over 2 ranks.
  EXPECT_EQ(held(model, "tp=2", 1, "model:model.layers.0.self_attn.q_proj.weight"),
            (std::vector<Box>{{{288, 0}, {288, 576}}}));
}

TEST(ShardMap, WhatDoesNotDivideIsNamed) {
  const Model model = model_by_name("smollm2-135m", 1);
  const State state = state_of(model);
  const std::string message = error_of(ErrorKind::kUsage, [&] { (void)state.bind(Layout::parse("tp=5"), model); });
  EXPECT_EQ(
      message,
      "layout: tensor 'model.embed_tokens.weight': dimension 0 of size 49152 cannot be cut over tp=5: 49152 does not "
      "divide by 5; add `uneven` to the layout or choose a degree that divides");
  const Model gpt2 = model_by_name("gpt2", 1);
  EXPECT_NE(
      error_of(ErrorKind::kUsage, [&] { (void)state_of(gpt2).bind(Layout::parse("tp=2"), gpt2); }).find("size 50257"),
      std::string::npos);
}

TEST(ShardMap, Gpt2ColumnsOfQKV) {
  const Model model = model_by_name("gpt2", 1);
  EXPECT_EQ(held(model, "tp=2,uneven", 1, "model:h.0.attn.c_attn.weight"),
            (std::vector<Box>{{{0, 384}, {768, 384}}, {{0, 1152}, {768, 384}}, {{0, 1920}, {768, 384}}}));
  EXPECT_EQ(held(model, "tp=2,uneven", 0, "model:h.0.attn.c_attn.bias"),
            (std::vector<Box>{{{0}, {384}}, {{768}, {384}}, {{1536}, {384}}}));
  EXPECT_EQ(held(model, "tp=2,uneven", 1, "model:h.0.mlp.c_fc.weight"), (std::vector<Box>{{{0, 1536}, {768, 1536}}}));
  EXPECT_EQ(held(model, "tp=2,uneven", 1, "model:h.0.mlp.c_proj.weight"), (std::vector<Box>{{{1536, 0}, {1536, 768}}}));
  EXPECT_EQ(held(model, "tp=2,uneven", 1, "model:wte.weight"), (std::vector<Box>{{{25129, 0}, {25128, 768}}}));
  EXPECT_EQ(held(model, "tp=2,uneven", 1, "model:wpe.weight"), (std::vector<Box>{{{0, 0}, {1024, 768}}}));
}

TEST(ShardMap, ExpertsGoWhole) {
  const Model model = model_by_name("mixtral-8x7b", 1);
  const State state = state_of(model);
  const ShardMap map = state.bind(Layout::parse("tp=2,dp=4,ep=4"), model);
  int checked = 0;
  for (int rank = 0; rank < 8; ++rank) {
    const auto names = held_by_name(map, state.sections, rank);
    for (int e = 0; e < 8; ++e, ++checked) {
      const std::string key = fmt::format("model:model.layers.0.block_sparse_moe.experts.{}.w2.weight", e);
      ASSERT_EQ(names.contains(key), e / 2 == rank / 2) << rank;
      if (e / 2 != rank / 2) continue;
      EXPECT_EQ(names.at(key), (std::vector<Box>{{{0, rank % 2 * std::uint64_t{7168}}, {4096, 7168}}}));
    }
  }
  EXPECT_EQ(checked, 64);
  // etp=1: whole experts over eight ranks.
  EXPECT_EQ(held(model, "tp=2,dp=4,ep=8,etp=1", 5, "model:model.layers.0.block_sparse_moe.experts.5.w1.weight"),
            (std::vector<Box>{{{0, 0}, {14336, 4096}}}));
  EXPECT_NE(
      error_of(ErrorKind::kUsage, [&] { (void)state.bind(Layout::parse("dp=3,ep=3"), model); }).find("the 8 experts"),
      std::string::npos);
}

TEST(ShardMap, ZeroOfExpertsGoesOverTheirOwnRanks) {
  const Model model = model_from_config(
      R"({"model_type":"mixtral","hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":2,
          "num_key_value_heads":2,"vocab_size":10,"num_local_experts":4})");
  const State state = state_of(model);
  int holes = 0;
  for (const char* layout :
       {"tp=2,dp=4,ep=2,zero=1", "tp=2,dp=4,ep=2,zero=3", "dp=4,ep=4,zero=1", "dp=4,ep=2,pp=2,zero=2"}) {
    SCOPED_TRACE(layout);
    const auto all = holders(state, state.bind(Layout::parse(layout), model));
    const std::string expert = "optimizer:model.layers.1.block_sparse_moe.experts.3.w1.weight/moment1_0";
    EXPECT_EQ(times_of(all, expert), std::vector<int>{1});
    EXPECT_EQ(all.size(), 4U * (3 + 2 * 19));
    for (const auto& [key, counts] : all) holes += static_cast<int>(std::ranges::count(counts, 0));
  }
  EXPECT_EQ(holes, 0);
}

TEST(ShardMap, ScalesAreCutWithTheirWeights) {
  const Model model = model_by_name("deepseek-v3", 4);
  State state;
  for (const Tensor& tensor : model.tensors) state.add("model", tensor.name, tensor.shape, tensor.dtype);
  const auto at = [&](const char* layout, const char* name) {
    return held_by_name(state.bind(Layout::parse(layout), model), state.sections, 3)
        .at(std::string("model:model.layers.3.") + name);
  };
  EXPECT_EQ(at("tp=8", "self_attn.o_proj.weight"), (std::vector<Box>{{{0, 6144}, {7168, 2048}}}));
  EXPECT_EQ(at("tp=8", "self_attn.o_proj.weight_scale_inv"), (std::vector<Box>{{{0, 48}, {56, 16}}}));
  EXPECT_EQ(at("tp=8", "self_attn.kv_a_proj_with_mqa.weight_scale_inv"), (std::vector<Box>{{{0, 0}, {5, 56}}}));
  const std::string message = error_of(ErrorKind::kUsage, [&] { (void)state.bind(Layout::parse("tp=32"), model); });
  EXPECT_NE(message.find("gate_proj.weight_scale_inv"), std::string::npos) << message;
  EXPECT_NE(message.find("its weight is cut at element 576 of 18432, which is not a multiple of the scale block 128"),
            std::string::npos)
      << message;
  EXPECT_EQ(at("tp=5,uneven", "self_attn.q_b_proj.weight"), (std::vector<Box>{{{39 * 384, 0}, {13 * 384, 1536}}}));
  EXPECT_EQ(at("tp=5,uneven", "self_attn.q_b_proj.weight_scale_inv"), (std::vector<Box>{{{39 * 3, 0}, {13 * 3, 12}}}));
}

TEST(ShardMap, StatesOfOtherShapesAreReplicated) {
  const Model model = small_llama();
  State state = state_of(model);
  state.add("optimizer", "model.layers.0.mlp.up_proj.weight/beta1_pow_acc_0", {1});
  state.add("optimizer", "optim.model.layers.1.mlp.up_proj.weight.step", {});
  state.add("optimizer", "global_step", {});
  const ShardMap map = state.bind(Layout::parse("tp=2,pp=2,dp=2,zero=1"), model);
  EXPECT_TRUE(map.notes().empty());
  int checked = 0;
  for (int rank = 0; rank < 8; ++rank, ++checked) {
    const auto names = held_by_name(map, state.sections, rank);
    EXPECT_EQ(names.at("optimizer:global_step"), (std::vector<Box>{Box{}}));
    // Accumulators are on the pipeline stage of their parameter.
    EXPECT_EQ(names.contains("optimizer:model.layers.0.mlp.up_proj.weight/beta1_pow_acc_0"), rank < 4);
    EXPECT_EQ(names.contains("optimizer:optim.model.layers.1.mlp.up_proj.weight.step"), rank >= 4);
  }
  EXPECT_EQ(checked, 8);
}

TEST(ShardMap, OrderOfTheListDoesNotMoveFlatPieces) {
  const Model model = small_llama();
  const State state = state_of(model);
  State reversed;
  for (std::size_t i = state.tensors.size(); i-- > 0;) {
    reversed.add(state.sections[i], state.tensors[i].name, state.tensors[i].shape, state.tensors[i].dtype);
  }
  const Layout layout = Layout::parse("tp=2,dp=3,zero=1");
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(held_by_name(state.bind(layout, model), state.sections, rank),
              held_by_name(reversed.bind(layout, model), reversed.sections, rank));
  }
}

TEST(ShardMap, UnknownModels) {
  State state;
  state.add("model", "a.weight", {10, 3});
  state.add("model", "b", {});
  state.add("model", "c", {3});
  state.add("optimizer", "a.weight/moment1_0", {10, 3});
  state.add("optimizer", "a.weight/beta1_pow_acc_0", {1});
  state.add("optimizer", "optim.a.weight.exp_avg", {10, 3});
  Model unknown;
  unknown.family = "unknown";
  const ShardMap map = state.bind(Layout::parse("tp=2,pp=2"), unknown);
  EXPECT_EQ(map.notes(), (std::vector<std::string>{"unknown model: every tensor is cut on dimension 0 over 4 ranks"}));
  const auto last = held_by_name(map, state.sections, 3);
  EXPECT_EQ(last.at("model:a.weight"), (std::vector<Box>{{{9, 0}, {1, 3}}}));
  EXPECT_EQ(last.at("optimizer:a.weight/moment1_0"), last.at("model:a.weight"));
  EXPECT_EQ(last.at("optimizer:optim.a.weight.exp_avg"), last.at("model:a.weight"));
  EXPECT_EQ(last.at("optimizer:a.weight/beta1_pow_acc_0"), (std::vector<Box>{{{0}, {1}}}));
  EXPECT_EQ(last.at("model:b"), (std::vector<Box>{Box{}}));
  EXPECT_TRUE(last.at("model:c").empty());
  // Without tensor or pipeline parallelism, no family is needed.
  EXPECT_TRUE(state.bind(Layout::parse("fsdp=4"), unknown).notes().empty());
  const auto zero = held_by_name(state.bind(Layout::parse("dp=2,zero=1"), unknown), state.sections, 1);
  EXPECT_EQ(zero.at("model:a.weight"), (std::vector<Box>{{{0, 0}, {10, 3}}}));
  EXPECT_EQ(zero.at("optimizer:a.weight/moment1_0"), (std::vector<Box>{{{5, 1}, {1, 2}}, {{6, 0}, {4, 3}}}));
  // Tensors that a known family does not have.
  const Model model = small_llama();
  const ShardMap other = state.bind(Layout::parse("tp=2"), model);
  ASSERT_EQ(other.notes().size(), 1U);
  EXPECT_NE(other.notes()[0].find("tensors are unknown to family llama"), std::string::npos);
}

TEST(ShardMap, RanksOutsideTheWorld) {
  const Model model = small_llama();
  const ShardMap map = state_of(model).bind(Layout::parse("dp=2"), model);
  EXPECT_EQ(map.held_by(1).size(), map.tensors().size());
  for (const int rank : {-1, 2}) error_of(ErrorKind::kInternal, [&] { (void)map.held_by(rank); });
  error_of(ErrorKind::kInternal, [&] { ShardMap(Layout::parse("dp=1"), model, {"model"}, {}); });
}

TEST(ShardMap, MillionsOfRanks) {
  const Model model = small_llama();
  const State state = state_of(model);
  const ShardMap map = state.bind(Layout::parse("fsdp=1000003,tp=2000"), model);
  EXPECT_EQ(map.layout().world_size(), 2000006000);
  const auto last = held_by_name(map, state.sections, 2000005999);
  EXPECT_TRUE(last.at("model:model.norm.weight").empty());
  const auto first = held_by_name(map, state.sections, 0);
  EXPECT_EQ(first.at("model:model.layers.1.mlp.down_proj.weight"), (std::vector<Box>{{{0, 0}, {1, 1}}}));
}

TEST(ShardMap, OneCallForLlama405bIsCheap) {
  const Model model = model_by_name("llama-3.1-405b");
  const State state = state_of(model);
  ASSERT_EQ(state.tensors.size(), 4548U);
  const ShardMap map = state.bind(Layout::parse("tp=8,pp=14,dp=146,zero=1"), model);
  std::size_t pieces = 0;
  const std::clock_t start = std::clock();
  constexpr int kCalls = 40;
  for (int i = 0; i < kCalls; ++i) pieces += map.held_by(i * 400).size();
  const double ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC / kCalls;
  EXPECT_GT(pieces, 40U * 80);
  RecordProperty("ms_per_call", fmt::format("{:.3f}", ms));
  EXPECT_LT(ms, 50.0);  // milliseconds of processor time; about 1 ms, room for sanitizers
}

}  // namespace
}  // namespace cairn::shard
