// The cuts of weights by PaddleNLP's tensor-parallel ranks, derived from names, sizes and bytes.
#include "interop/paddle/tensor_cuts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test_directory.hpp"

namespace cairn::interop::test {
namespace {

using testing::HasSubstr;

constexpr std::uint32_t kRanks = 4;

TensorCut cut(const std::string& name, const Shape& shape, const ModelFacts& facts, Copies copies = Copies::kUnknown) {
  return cut_of(name, shape, kRanks, facts, [=] { return copies; });
}

/// The cut in words: "rows", "columns", "2 columns" (a fused weight), "whole" or "?".
std::string words(const TensorCut& cut, std::size_t dimensions) {
  if (!cut.unknown.empty()) return "?";
  if (!cut.is_cut) return "whole";
  if (cut.dimension + 1 != dimensions) return "rows";
  return (cut.fused.size() == 1 ? "" : std::to_string(cut.fused.size()) + " ") + "columns";
}

std::string way(const std::string& name, const std::string& family, const Shape& shape = {8, 6},
                Copies copies = Copies::kUnknown) {
  return words(cut(name, shape, {family, 32, 8, false}, copies), shape.size());
}

TEST(TensorCuts, FollowTheRulesOfAFamily) {
  EXPECT_EQ(way("llama.layers.3.self_attn.q_proj.weight", "llama"), "columns");
  EXPECT_EQ(way("llama.layers.3.self_attn.o_proj.weight", "llama"), "rows");
  EXPECT_EQ(way("llama.layers.3.mlp.gate_up_fused_proj.weight", "llama"), "2 columns");
  EXPECT_EQ(way("qwen.h.0.attn.c_attn.bias", "qwen", {6}), "3 columns");
  EXPECT_EQ(way("qwen.h.0.mlp.w2.weight", "qwen"), "columns");
  EXPECT_EQ(way("mixtral.layers.0.block_sparse_moe.experts.1.w2.weight", "mixtral"), "rows");
  EXPECT_EQ(way("bloom.h.0.self_attention.query_key_value.weight", "bloom"), "columns");
  EXPECT_EQ(way("glm.transformer.layers.0.attention.query_key_value.weight", "glm"), "?");
  EXPECT_EQ(way("chatglm_v2.encoder.layers.0.mlp.dense_h_to_4h.weight", "chatglm_v2"), "2 columns");
  EXPECT_EQ(way("chatglm.transformer.layers.0.mlp.dense_h_to_4h.weight", "chatglm"), "columns");
  EXPECT_EQ(way("deepseek_v2.layers.1.mlp.experts.3.up_proj.weight", "deepseek_v2"), "whole");
  EXPECT_EQ(way("deepseek_v2.layers.1.mlp.shared_experts.up_proj.weight", "deepseek_v2"), "columns");
  EXPECT_EQ(way("qwen2_moe.layers.1.mlp.gate.weight", "qwen2_moe"), "whole");
}

TEST(TensorCuts, BiasesAndAdaptersFollowTheirWeight) {
  EXPECT_EQ(way("qwen2.layers.0.self_attn.q_proj.bias", "qwen2", {6}), "columns");
  EXPECT_EQ(way("opt.decoder.layers.0.linear2.bias", "opt", {6}), "whole");
  EXPECT_EQ(way("llama.layers.0.self_attn.q_proj.lora_A", "llama"), "whole");
  EXPECT_EQ(way("llama.layers.0.self_attn.q_proj.lora_B", "llama"), "columns");
  EXPECT_EQ(way("llama.layers.0.mlp.down_proj.lora_A", "llama"), "rows");
  EXPECT_EQ(way("llama.layers.0.mlp.down_proj.lora_B", "llama"), "whole");
  EXPECT_EQ(way("llama.layers.0.mlp.gate_up_fused_proj.lora_B", "llama"), "?");
}

TEST(TensorCuts, SizesTellWhatComesOutEven) {
  const auto embedding = [](std::uint64_t rows, std::optional<std::uint64_t> vocabulary,
                            Copies copies = Copies::kUnknown) {
    return words(cut("llama.embed_tokens.weight", {rows, 6}, {"llama", vocabulary, 8, false}, copies), 2);
  };
  EXPECT_EQ(embedding(8, 32), "rows");
  EXPECT_EQ(embedding(33, 33), "whole");
  EXPECT_EQ(embedding(8, 33), "?");
  EXPECT_EQ(embedding(8, std::uint64_t{1} << 63), "?");
  EXPECT_EQ(embedding(8, std::nullopt, Copies::kDiffer), "rows");
  EXPECT_EQ(embedding(8, std::nullopt, Copies::kAlike), "whole");
  EXPECT_EQ(embedding(8, std::nullopt, Copies::kUniform), "?");
  const auto keys = [](std::uint64_t heads) {
    return words(cut("llama.layers.0.self_attn.k_proj.weight", {6, 8}, {"llama", 32, heads, false}), 2);
  };
  EXPECT_EQ(keys(8), "columns");
  EXPECT_EQ(keys(2), "whole");
  EXPECT_EQ(words(cut("lm_head.weight", {8, 6}, {"llama", 32, 8, true}), 2), "rows");
  EXPECT_EQ(words(cut("lm_head.weight", {6, 8}, {"llama", 32, 8, false}), 2), "columns");
}

TEST(TensorCuts, BytesTellWhatNamesDoNot) {
  const std::string mixer = "n.mixer.weight";
  EXPECT_EQ(way(mixer, "", {8, 6}, Copies::kAlike), "whole");
  for (const Copies copies : {Copies::kDiffer, Copies::kUniform, Copies::kUnknown})
    EXPECT_EQ(way(mixer, "", {8, 6}, copies), "?");
  EXPECT_EQ(way("llama.mixer.weight", "llama", {8, 6}, Copies::kUniform), "whole");
  EXPECT_EQ(way("llama.mixer.weight", "llama", {8, 6}, Copies::kDiffer), "?");
  EXPECT_EQ(way("n.final_norm.weight", "", {6}, Copies::kUniform), "whole");
  EXPECT_EQ(way("n.final_norm.weight", "", {6}, Copies::kDiffer), "?");
  const TensorCut drifted = cut("llama.norm.weight", {6}, {"llama", 32, 8, false}, Copies::kDiffer);
  EXPECT_FALSE(drifted.is_cut);
  EXPECT_TRUE(drifted.differs);
  EXPECT_EQ(way("llama.layers.0.self_attn.q_proj.quant_scale", "llama", {6}, Copies::kDiffer), "?");
}

TEST(TensorCuts, FactsAreOfTheConfigurationAndNames) {
  const auto facts = [](const std::string& config, const std::string& name) {
    const TestDirectory d = TestDirectory().json("config.json", config);
    return facts_of(Reading(d.directory), name);
  };
  EXPECT_EQ(facts(R"({"model_type": "qwen2", "vocab_size": 9})", "llama.norm.weight").family, "qwen2");
  EXPECT_EQ(facts(R"({"model_type": "new"})", "llama.norm.weight").family, "llama");
  EXPECT_EQ(facts("[]", "model.norm.weight").family, "");
  EXPECT_EQ(facts(R"({"architectures": ["Qwen3MoeForCausalLM"]})", "model.norm.weight").family, "qwen3_moe");
  EXPECT_EQ(facts(R"({"architectures": ["QWenLMHeadModel"]})", "").family, "qwen");
  EXPECT_EQ(facts(R"({"model_type": "new", "architectures": ["LlamaForCausalLM"]})", "").family, "");
  EXPECT_EQ(facts(R"({"num_attention_heads": 4, "num_key_value_heads": null})", "").key_value_heads, 4U);
  EXPECT_TRUE(is_tied(facts(R"({"tie_word_embeddings": true})", "")));
  const TestDirectory none;
  EXPECT_FALSE(facts_of(Reading(none.directory), "gpt.norm.weight").vocabulary);
  EXPECT_EQ(facts_of(Reading(none.directory), "gpt.norm.weight").family, "gpt");
}

}  // namespace
}  // namespace cairn::interop::test
