// Families compared with published totals; corner cases of configurations; tensor rules; names of training states.
#include "shard/model.hpp"
#include "shard/shard_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "layout_data.hpp"

namespace cairn::shard {
namespace {

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> out;
  for (const Tensor& tensor : model.tensors) out.push_back(tensor.name);
  return out;
}

std::vector<std::string> names_with(const Model& model, const std::string& prefix) {
  std::vector<std::string> out;
  for (const std::string& name : names_of(model)) {
    if (name.starts_with(prefix)) out.push_back(name.substr(prefix.size()));
  }
  return out;
}

TEST(Models, TotalsOfEveryNamedModel) {
  std::istringstream table(read_text(data_path("layouts/models.txt")));
  std::set<std::string> seen;
  for (std::string line; std::getline(table, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string name;
    std::uint64_t tensors = 0, parameters = 0, bytes = 0;
    ASSERT_TRUE(words >> name >> tensors >> parameters >> bytes) << line;
    const Model model = model_by_name(name);
    std::uint64_t found_parameters = 0, found_bytes = 0;
    std::set<std::string> names;
    for (const Tensor& tensor : model.tensors) {
      found_parameters += elements_of(tensor.shape);
      found_bytes += elements_of(tensor.shape) * bits_of(tensor.dtype) / 8;
      names.insert(tensor.name);
      ASSERT_TRUE(rule_of(model, tensor.name)) << tensor.name;
    }
    EXPECT_EQ(model.tensors.size(), tensors) << name;
    EXPECT_EQ(names.size(), tensors) << name;
    EXPECT_EQ(found_parameters, parameters) << name;
    EXPECT_EQ(found_bytes, bytes) << name;
    seen.insert(name);
  }
  const auto all = model_names();
  EXPECT_EQ(seen, std::set<std::string>(all.begin(), all.end()));
  EXPECT_EQ(seen.size(), 29U);
}

TEST(Models, StateDictOrder) {
  const std::vector<std::string> qwen2{"q_proj.weight", "q_proj.bias", "k_proj.weight", "k_proj.bias",
                                       "v_proj.weight", "v_proj.bias", "o_proj.weight"};
  EXPECT_EQ(names_with(model_by_name("qwen2-0.5b", 1), "model.layers.0.self_attn."), qwen2);
  const std::vector<std::string> qwen3{
      "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",        "self_attn.o_proj.weight",
      "self_attn.q_norm.weight", "self_attn.k_norm.weight", "mlp.gate_proj.weight",           "mlp.up_proj.weight",
      "mlp.down_proj.weight",    "input_layernorm.weight",  "post_attention_layernorm.weight"};
  EXPECT_EQ(names_with(model_by_name("qwen3-8b", 2), "model.layers.1."), qwen3);
  EXPECT_EQ(names_of(model_by_name("llama-3.2-1b", 1)).front(), "model.embed_tokens.weight");
  EXPECT_EQ(names_of(model_by_name("llama-3.2-1b", 1)).back(), "model.norm.weight");
  EXPECT_EQ(names_of(model_by_name("llama-3-8b", 1)).back(), "lm_head.weight");
}

TEST(Models, LayersCanBeOverridden) {
  EXPECT_EQ(model_by_name("llama-3.1-405b", 2).tensors.size(), 3U + 2 * 9);
  EXPECT_EQ(model_by_name("llama-3.1-405b", 2).layers, 2U);
  EXPECT_FALSE(rule_of(model_by_name("llama-3.1-405b", 2), "model.layers.2.mlp.up_proj.weight"));
  EXPECT_EQ(names_with(model_by_name("deepseek-v3", 1), "model.layers.1.eh_proj").size(), 1U);
}

TEST(Models, ConfigVariants) {
  const std::string base = R"("model_type":"llama","hidden_size":8,"intermediate_size":16,"num_hidden_layers":1,
                              "num_attention_heads":2,"vocab_size":10)";
  const Model plain = model_from_config("{" + base + "}");
  EXPECT_EQ(plain.tensors.size(), 12U);
  EXPECT_EQ(plain.tensors[0].dtype, DType::kF32);
  EXPECT_EQ(plain.tensors[2].shape, (Shape{8, 8}));  // without num_key_value_heads, that is the number of heads
  EXPECT_EQ(model_from_config("{" + base + R"(,"dtype":"float16","torch_dtype":"bfloat16"})").tensors[0].dtype,
            DType::kF16);
  EXPECT_EQ(model_from_config("{" + base + R"(,"torch_dtype":"bfloat16"})").tensors[0].dtype, DType::kBF16);
  EXPECT_EQ(
      model_from_config("{" + base + R"(,"limit":[0.0,Infinity],"mark":"\ud800","vocab_size":12})").tensors[0].shape,
      (Shape{12, 8}));  // as Python reads it
  EXPECT_EQ(model_from_config("{" + base + R"(,"head_dim":null})").tensors[1].shape, (Shape{8, 8}));
  EXPECT_EQ(model_from_config("{" + base + R"(,"head_dim":16})").tensors[1].shape, (Shape{32, 8}));
  EXPECT_EQ(model_from_config("{" + base + R"(,"tie_word_embeddings":true})").tensors.size(), 11U);
  const Model biased = model_from_config("{" + base + R"(,"attention_bias":true,"mlp_bias":true})");
  EXPECT_EQ(biased.tensors.size(), 12U + 4 + 3);
  EXPECT_EQ(names_of(biased)[8], "model.layers.0.self_attn.o_proj.bias");
  EXPECT_EQ(rule_of(biased, "model.layers.0.self_attn.o_proj.bias")->tp_dim, -1);
  EXPECT_EQ(rule_of(biased, "model.layers.0.mlp.up_proj.bias")->tp_dim, 0);
  EXPECT_EQ(rule_of(biased, "model.layers.0.mlp.down_proj.bias")->tp_dim, -1);
}

TEST(Models, ConfigErrorsNameTheKey) {
  const auto fails = [](const std::string& config, const std::string& key) {
    const std::string message = error_of(ErrorKind::kFormat, [&] { (void)model_from_config(config); });
    EXPECT_NE(message.find(key), std::string::npos) << message;
  };
  fails("", "not valid JSON");
  fails("[1]", "config.json: must be an object");
  fails(R"({"model_type":"llama","num_hidden_layers":Infinity})", "num_hidden_layers: must be");
  fails(R"({"model_type":"llama","num_hidden_layers":NaN})", "from 1 to 65536, found NaN");
  fails(R"({"model_type":"llama"})", "'num_hidden_layers' is missing");
  fails(R"({"model_type":"llama","num_hidden_layers":2})", "'hidden_size' is missing");
  fails(R"({"model_type":"llama","num_hidden_layers":"2"})",
        "num_hidden_layers: must be a whole number from 1 to 65536, found \"2\"");
  fails(R"({"model_type":"llama","num_hidden_layers":1.5})", "num_hidden_layers: must be");
  fails(R"({"model_type":"llama","num_hidden_layers":-1})", "num_hidden_layers: must be");
  fails(R"({"model_type":"llama","num_hidden_layers":1000000000})", "num_hidden_layers: must be");
  fails(R"({"model_type":"llama","num_hidden_layers":1,"torch_dtype":"int3"})", "torch_dtype: 'int3' is not known");
  fails(R"({"model_type":7})", "model_type: must be a string");
  fails(R"({"model_type":"gpt2","n_layer":1,"n_embd":2,"n_head":4,"vocab_size":4})", "n_embd");
  fails(R"({"model_type":"mixtral","num_hidden_layers":60000,"hidden_size":8,"num_attention_heads":2,"vocab_size":9,
            "num_local_experts":60000,"intermediate_size":8})",
        "2^19 tensors");
}

TEST(Models, UnknownFamilies) {
  for (const char* config : {"{}", R"({"model_type":"bert"})", R"({"model_type":null})",
                             R"({"model_type":"llama","quantization_config":{"quant_method":"gptq"}})"}) {
    const Model model = model_from_config(config);
    EXPECT_EQ(model.family, "unknown");
    EXPECT_TRUE(model.tensors.empty());
    EXPECT_FALSE(rule_of(model, "model.norm.weight"));
  }
  const std::string message = error_of(ErrorKind::kUsage, [] { (void)model_by_name("llama-4"); });
  EXPECT_NE(message.find("unknown model 'llama-4'; known: llama-2-7b"), std::string::npos);
  EXPECT_NE(message.find("smollm2-135m"), std::string::npos);
}

TEST(Models, RulesOfFamilies) {
  const Model llama = model_by_name("smollm2-135m");
  const ShardRule embed = rule_of(llama, "model.embed_tokens.weight").value();
  EXPECT_TRUE(embed.first_stage && embed.last_stage && embed.tp_dim == 0 && embed.layer == -1);
  EXPECT_EQ(rule_of(llama, "model.layers.7.self_attn.o_proj.weight")->tp_dim, 1);
  EXPECT_EQ(rule_of(llama, "model.layers.7.self_attn.o_proj.weight")->unit, 64U);
  EXPECT_EQ(rule_of(llama, "model.layers.7.self_attn.o_proj.weight")->layer, 7);
  EXPECT_TRUE(rule_of(llama, "lm_head.weight")->last_stage);  // in some files although it is tied
  EXPECT_TRUE(rule_of(llama, "model.layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(rule_of(llama, "model.layers.30.mlp.up_proj.weight"));

  const Model v3 = model_by_name("deepseek-v3");
  EXPECT_EQ(rule_of(v3, "model.layers.0.self_attn.q_a_proj.weight")->tp_dim, -1);
  EXPECT_EQ(rule_of(v3, "model.layers.0.self_attn.q_b_proj.weight")->unit, 384U);  // heads of 192 in blocks of 128
  EXPECT_EQ(rule_of(v3, "model.layers.3.mlp.experts.255.down_proj.weight")->expert, 255);
  EXPECT_EQ(rule_of(v3, "model.layers.3.mlp.experts.255.down_proj.weight_scale_inv")->scaled_size, 2048U);
  EXPECT_TRUE(rule_of(v3, "model.layers.61.eh_proj.weight")->last_stage);
  EXPECT_EQ(rule_of(v3, "model.layers.61.eh_proj.weight")->layer, -1);
  const auto find = [&](const char* name) { return *std::ranges::find(v3.tensors, std::string(name), &Tensor::name); };
  EXPECT_EQ(find("model.layers.0.self_attn.kv_a_proj_with_mqa.weight_scale_inv").shape, (Shape{5, 56}));
  EXPECT_EQ(find("model.layers.3.mlp.gate.e_score_correction_bias").dtype, DType::kF32);

  const Model gpt2 = model_by_name("gpt2");
  EXPECT_EQ(rule_of(gpt2, "h.0.attn.c_attn.weight")->parts, 3U);
  EXPECT_EQ(rule_of(gpt2, "transformer.h.0.attn.c_attn.weight")->parts, 3U);
  EXPECT_EQ(rule_of(gpt2, "h.0.mlp.c_proj.weight")->tp_dim, 0);
  EXPECT_TRUE(rule_of(gpt2, "h.11.attn.bias"));
}

TEST(Models, NamesOfStates) {
  EXPECT_EQ(base_name("a.b/moment1_0"), "a.b");
  EXPECT_EQ(base_name("a.b"), "a.b");
  EXPECT_EQ(base_name(""), "");
  const Model model = model_by_name("smollm2-135m", 1);
  for (const char* name : {"model.norm.weight", "model.norm.weight/moment1_0", "optim.model.norm.weight.exp_avg",
                           "optim.state.model.norm.weight.step", "adam_m.model.norm.weight", "lm.model.norm.weight",
                           "optimizer.state.exp_avg.model.norm.weight"}) {
    EXPECT_EQ(parameter_of(model, name), "model.norm.weight") << name;
  }
  for (const char* name : {"global_step", "", "norm.weight", "model.norm"})
    EXPECT_EQ(parameter_of(model, name), "") << name;
}

TEST(Models, HostileNamesTakeNoTime) {
  const Model model = model_by_name("smollm2-135m", 1);
  std::string words;
  for (int i = 0; i < 60; ++i) words += "a.";
  EXPECT_EQ(parameter_of(model, words + "model.norm.weight"), "model.norm.weight");
  for (int i = 0; i < 100000; ++i) words += "a.";
  EXPECT_EQ(parameter_of(model, words + "model.norm.weight"), "");
  const ShardMap map(Layout::parse("tp=2,uneven"), Model{}, {"model", "model"},
                     {{"model.norm.weight", DType::kF32, {4}}, {words + "model.norm.weight", DType::kF32, {4}}});
  EXPECT_EQ(map.held_by(1).size(), 2U);
}

TEST(Models, TrainingState) {
  const Model model = model_by_name("deepseek-v3", 1);
  const auto state = training_state(model);
  ASSERT_EQ(state.size(), 3U);
  EXPECT_EQ(state[0].section, "model");
  EXPECT_EQ(state[0].tensors, model.tensors);
  EXPECT_EQ(state[1].section, "master_weights");
  EXPECT_EQ(state[2].section, "optimizer");
  EXPECT_EQ(state[2].tensors.size(), 2 * state[1].tensors.size());
  EXPECT_EQ(state[2].tensors[1].name, state[1].tensors[0].name + "/moment2_0");
  for (const auto& tensor : state[1].tensors) EXPECT_EQ(tensor.dtype, DType::kF32);
  EXPECT_LT(state[1].tensors.size(), model.tensors.size());  // scales have no master copy
}

}  // namespace
}  // namespace cairn::shard
