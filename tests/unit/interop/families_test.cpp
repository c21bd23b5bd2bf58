// The table of model families compared with the packages' answers (tests/data/paddle/families.txt), and its answers for
// unknown models.
#include "interop/paddle/families.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "environment.hpp"
#include "interop/paddle/tensor_cuts.hpp"

namespace cairn::interop::test {
namespace {

using testing::HasSubstr;

const PaddlePackage& nlp() { return *paddle_package("paddlenlp"); }
const PaddlePackage& formers() { return *paddle_package("paddleformers"); }

/// A line of families.txt.
struct Fact {
  std::string package;
  std::string family;
  std::string what;
  std::vector<std::string> names;
};

const std::vector<Fact>& facts() {
  static const std::vector<Fact> all = [] {
    std::vector<Fact> out;
    std::istringstream lines(cairn::test::read_file(cairn::test::test_data("paddle/families.txt")));
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with('#')) continue;
      std::istringstream words(line);
      Fact fact;
      words >> fact.package >> fact.family >> fact.what;
      for (std::string name; words >> name;) fact.names.push_back(name);
      out.push_back(std::move(fact));
    }
    return out;
  }();
  return all;
}

/// A model whose head is not tied.
ModelFacts model(const std::string& family) { return {.family = family, .key_value_heads = 4, .says_tied = false}; }

/// The cut of a weight: "columns", "columns2", "rows", "whole" or "own".
std::string way_of(const ModelFacts& model, const std::string& name, Copies copies) {
  const std::vector<std::uint64_t> shape(name.ends_with(".bias") ? 1 : 2, 24);
  const TensorCut cut = cut_of(name, shape, 2, model, [=] { return copies; });
  if (!cut.unknown.empty()) return "own";
  if (!cut.is_cut) return "whole";
  if (cut.dimension + 1 != shape.size()) return "rows";
  return cut.fused.size() == 1 ? "columns" : "columns" + std::to_string(cut.fused.size());
}

bool ends_with_one(const std::string& name, const std::set<std::string>& ends) {
  return std::ranges::any_of(ends, [&](const std::string& end) { return name == end || name.ends_with("." + end); });
}

TEST(Families, TurnWhatPaddleNlpTurns) {
  std::size_t looked_at = 0;
  for (const Fact& fact : facts()) {
    if (fact.what != "turned" && fact.what != "kept") continue;
    for (const std::string& name : fact.names) {
      EXPECT_EQ(is_turned(model(fact.family), nlp(), name), fact.what == "turned") << fact.family << " " << name;
      ++looked_at;
    }
  }
  EXPECT_GT(looked_at, 200U);
}

TEST(Families, AreCutAsPaddleNlpCutsThem) {
  std::map<std::string, std::set<std::string>> cut;
  for (const Fact& fact : facts()) {
    if (fact.package != "paddlenlp" || fact.what == "turned" || fact.what == "kept") continue;
    for (const std::string& name : fact.names) {
      EXPECT_EQ(way_of(model(fact.family), name, Copies::kDiffer), fact.what) << fact.family << " " << name;
      cut[fact.family].insert(name);
    }
  }
  for (const Fact& fact : facts()) {
    if (fact.what != "turned" && fact.what != "kept") continue;
    for (const std::string& name : fact.names) {
      if (ends_with_one(name, cut[fact.family])) continue;
      EXPECT_EQ(way_of(model(fact.family), name, Copies::kAlike), "whole") << fact.family << " " << name;
    }
  }
}

TEST(Families, TurnInFilesWhatPaddleFormersTurns) {
  std::set<std::string> all = {"embed_tokens", "w1", "router"};
  for (const Fact& fact : facts()) {
    if (fact.what == "keys") all.insert(fact.names.begin(), fact.names.end());
  }
  for (const Fact& fact : facts()) {
    if (fact.what != "keys") continue;
    const std::set<std::string> keys(fact.names.begin(), fact.names.end());
    for (const std::string& name : all) {
      EXPECT_EQ(is_turned_in_file(model(fact.family), "model.layers.0." + name + ".weight"), ends_with_one(name, keys))
          << fact.family << " " << name;
    }
  }
}

TEST(Families, AreTiedAsTheirConfigurationsAre) {
  const auto is_tied_by = [](const std::string& config) {
    return is_tied(facts_of(base::Json::parse(config, "config.json")));
  };
  std::size_t looked_at = 0;
  for (const Fact& fact : facts()) {
    if (fact.what != "tied" && fact.what != "untied") continue;
    EXPECT_EQ(is_tied_by(R"({"model_type": ")" + fact.family + R"("})"), fact.what == "tied") << fact.family;
    ++looked_at;
  }
  EXPECT_GT(looked_at, 35U);
  EXPECT_FALSE(is_tied_by(R"({"model_type": "gemma", "tie_word_embeddings": false})"));
  EXPECT_TRUE(is_tied_by(R"({"tie_word_embeddings": true})"));
}

TEST(Families, HeadsAreTurnedByFamilyAndPackage) {
  const std::string head = "lm_head.weight";
  const auto turned = [&](const ModelFacts& model) {
    return std::vector{is_turned(model, nlp(), head), is_turned_in_model(model, nlp(), head),
                       is_turned(model, formers(), head), is_turned_in_model(model, formers(), head)};
  };
  using Turned = std::vector<std::optional<bool>>;
  EXPECT_EQ(turned(model("llama")), (Turned{true, true, false, false}));
  EXPECT_EQ(turned({.family = "llama", .says_tied = true}), (Turned{false, false, false, false}));
  EXPECT_EQ(turned({.family = "llama"}), (Turned{true, true, false, false}));
  EXPECT_EQ(turned({.family = "gemma"}), (Turned{false, false, false, false}));
  EXPECT_EQ(turned(model("gemma")), (Turned{true, true, false, false}));
  // PaddleNLP's heads of these models have their own weight, whatever config.json says.
  for (const char* family : {"yuan", "mistral", "mixtral", "qwen", "qwen2_moe", "deepseek_v2"}) {
    for (const std::optional<bool> said : {std::optional<bool>(), std::optional(false), std::optional(true)}) {
      EXPECT_EQ(turned({.family = family, .says_tied = said}), (Turned{true, true, false, false})) << family;
      EXPECT_EQ(way_of({.family = family, .says_tied = said}, head, Copies::kDiffer), "columns") << family;
    }
  }
  EXPECT_EQ(turned(model("gemma3_text")), (Turned{false, false, false, true}));
  EXPECT_EQ(turned(model("glm_ocr")), (Turned{true, true, true, false}));
  EXPECT_EQ(turned({.family = "glm_ocr", .says_tied = true}), (Turned{false, false, false, false}));
  EXPECT_EQ(turned(model("ernie")), (Turned{true, true, true, true}));
}

TEST(Families, LinearWeightsAreKnownByTheirNames) {
  const ModelFacts none;
  const auto is_linear = [&](const char* name) { return is_turned(none, formers(), name); };
  EXPECT_EQ(is_linear("model.layers.0.self_attn.q_proj.weight"), true);
  EXPECT_EQ(is_linear("down_proj.weight"), true);
  for (const char* name : {"model.layers.0.self_attn.q_proj.bias", "lm_head.weight", "model.embed_tokens.weight",
                           "model.layers.0.self_attn.q_proj.lora_A.weight", ""}) {
    EXPECT_EQ(is_linear(name), false) << name;
  }
  for (const char* name : {"model.xq_proj.weight", ".weight", "model.layers.0.mlp.gate.weight", "a.c_attn.weight"}) {
    EXPECT_EQ(is_linear(name), std::nullopt) << name;
  }
  EXPECT_THAT(why_unknown(none), HasSubstr("no model_type"));
  EXPECT_THAT(why_unknown({.type = "new"}), HasSubstr("model_type 'new'"));
}

TEST(Families, QueryKeyAndValueAreAsWideAsTheirHeads) {
  const std::string name = "ernie.layers.0.self_attn.qkv_proj.weight";
  const auto fused = [&](const std::string& config) {
    return fused_of(facts_of(base::Json::parse(config, "c"), name), name);
  };
  EXPECT_EQ(fused(R"({"num_attention_heads": 4, "num_key_value_heads": 2})").widths,
            (std::vector<std::uint64_t>{4, 2, 2}));
  for (const char* kin : {"ernie4_5", "ernie4_5_moe"}) {
    EXPECT_EQ(
        fused(R"({"num_attention_heads": 4, "num_key_value_heads": 2, "model_type": ")" + std::string(kin) + "\"}")
            .widths.size(),
        3U);
  }
  EXPECT_EQ(fused(R"({"num_attention_heads": 4, "num_key_value_heads": 4})").widths.size(), 1U);
  EXPECT_EQ(fused(R"({"num_attention_heads": 4, "num_key_value_heads": null})").widths.size(), 1U);
  EXPECT_THAT(fused(R"({"num_attention_heads": 4})").unknown, HasSubstr("does not say num_key_value_heads"));
  EXPECT_THAT(fused(R"({"num_attention_heads": 4, "num_key_value_heads": "2"})").unknown, HasSubstr("num_key_value"));
  EXPECT_THAT(fused(R"({"num_attention_heads": 4, "num_key_value_heads": 0})").unknown, HasSubstr("num_key_value"));
  EXPECT_THAT(fused(R"({"num_key_value_heads": 4})").unknown, HasSubstr("does not say num_attention_heads"));
  const std::string of_others = "model.layers.0.self_attn.qkv_proj.weight";
  EXPECT_THAT(fused_of({}, of_others).unknown, HasSubstr("no model_type"));
  EXPECT_EQ(fused_of(model("llama"), of_others).widths.size(), 1U);
}

TEST(Families, ScalesOfSeveralWeightsAreMisread) {
  for (const char* name : {"llama.layers.0.mlp.gate_up_fused_proj.weight", "ernie.layers.0.mlp.up_gate_proj.weight",
                           "qwen.h.0.attn.c_attn.weight", "model.layers.0.mlp.gate_up_fused_proj.weight",
                           "model.layers.0.mlp.up_gate_proj.weight", "ernie.layers.0.self_attn.qkv_proj.weight"}) {
    EXPECT_TRUE(has_misread_scales(facts_of(base::Json::object(), name), name)) << name;
  }
  for (const char* name : {"llama.layers.0.self_attn.qkv_proj.weight", "llama.layers.0.mlp.up_proj.weight"}) {
    EXPECT_FALSE(has_misread_scales(facts_of(base::Json::object(), name), name)) << name;
  }
}

}  // namespace
}  // namespace cairn::interop::test
