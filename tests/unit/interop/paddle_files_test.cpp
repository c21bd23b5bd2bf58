// The check of a catalog for PaddlePaddle's trainers, and the content of the extra files; no file is written.
#include "interop/paddle/files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "cairn/error.hpp"
#include "expect_error.hpp"
#include "interop/paddle/check.hpp"
#include "interop/paddle/families.hpp"
#include "plan/hf_layout.hpp"

namespace cairn::test {
namespace {

using interop::CatalogShare;
using interop::PaddleFacts;
using interop::StateToWrite;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

using Tensors = std::vector<plan::CatalogTensor>;

constexpr const char* kConfig =
    R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "tie_word_embeddings": true})";

const interop::PaddlePackage& package(const char* word) { return *interop::paddle_package(word); }

void add_states(Tensors& tensors, const std::string& parameter, const std::vector<std::uint64_t>& shape) {
  tensors.push_back({"master_weights", parameter, DType::kF32, shape});
  for (const char* state : {"/moment1_0", "/moment2_0"}) {
    tensors.push_back({"optimizer", parameter + state, DType::kF32, shape});
  }
  for (const char* state : {"/beta1_pow_acc_0", "/beta2_pow_acc_0"}) {
    tensors.push_back({"optimizer", parameter + state, DType::kF32, {1}});
  }
}

/// A model of one layer with tied embeddings, as PaddleNLP or PaddleFormers holds it in memory.
Tensors tied_model(const interop::PaddlePackage& of) {
  const std::string base = of.names_by_type ? "llama." : "model.";
  Tensors tensors;
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> shape) {
    add_states(tensors, name, shape);
    if (interop::is_turned_in_file({"llama", {}, {}, true}, name) == true && of.linears_out_in)
      std::swap(shape.at(0), shape.at(1));
    tensors.push_back({"model", name, DType::kBF16, std::move(shape)});
  };
  add(base + "layers.0.mlp.gate_proj.weight", {8, 12});
  add(base + "layers.0.input_layernorm.weight", {8});
  add(base + "embed_tokens.weight", {20, 8});
  add("lm_head.weight", {20, 8});
  return tensors;
}

PaddleFacts check(const Tensors& tensors, const char* word, const CatalogShare& share = {}) {
  return interop::check_for_paddle(plan::PackedCatalog(plan::make_catalog(tensors)), package(word), share);
}

/// The extra files that form `word` writes for these tensors: indexes and files for the trainer.
interop::FormFiles files_of(const Tensors& tensors, const char* word, const StateToWrite& state) {
  const interop::Form& form = interop::form_called(word);
  const plan::Catalog catalog = plan::make_catalog(tensors);
  const auto checked = form.check(plan::PackedCatalog(catalog), {});
  return checked->files_beside(plan::lay_out_hf(catalog, form.layout({})).index_files, state, 0);
}

TEST(PaddleFiles, WhatItsLoadersFindPasses) {
  for (const char* word : {"paddlenlp", "paddleformers"}) {
    const PaddleFacts facts = check(tied_model(package(word)), word);
    EXPECT_THAT(facts.sections, ElementsAre("master_weights", "model", "optimizer"));
    EXPECT_THAT(facts.states, ElementsAre("beta1_pow_acc_0", "beta2_pow_acc_0", "moment1_0", "moment2_0"));
    EXPECT_EQ(facts.stage, "O0");
    EXPECT_FALSE(facts.is_f32_model);
    EXPECT_NO_THROW(interop::check_config(package(word), facts, base::Json::parse(kConfig, "config.json"), 0));
  }
  expect_error(ErrorKind::kUsage, [] { check({}, "paddlenlp"); }, {"PaddleNLP would have nothing to resume from"});
  // An optimizer alone, without a model that shows the orientation of its weights.
  Tensors alone;
  add_states(alone, "w", {3, 4});
  EXPECT_NO_THROW(check(alone, "paddlenlp"));
  // Weights of adapters keep their shapes.
  alone.push_back({"adapter", "w", DType::kBF16, {6, 4}});
  EXPECT_NO_THROW(check(alone, "paddleformers"));
}

TEST(PaddleFiles, CodesOfO2StandForBothMoments) {
  Tensors tensors;
  for (const char* state : {"/moment1_0@scales", "/moment2_0@min_scales", "/moment2_0@max_scales"}) {
    tensors.push_back({"optimizer", std::string("w") + state, DType::kF32, {1, 4}});
  }
  tensors.push_back({"optimizer", "w/moment2_0", DType::kI8, {32, 4}});
  for (const char* state : {"/moment1_0", "/moment2_0"}) {
    tensors.push_back({"optimizer", std::string("norm") + state, DType::kF32, {4}});
  }
  EXPECT_EQ(check(tensors, "paddlenlp").stage, "O2");
  const auto files = files_of(tensors, "paddlenlp", {});
  const std::string& index = files.texts.at("optimizer.safetensors.index.json");
  EXPECT_THAT(index, HasSubstr("\"total_size\": 1056"));  // for F32 moments
  EXPECT_THAT(index, HasSubstr("\"w/moment1_0\": \"optimizer-00001-of-00001.safetensors\",\n"));
  EXPECT_THAT(index, HasSubstr("\"ckpt_quant_stage\": \"O2\""));
  EXPECT_THAT(index, testing::Not(HasSubstr("@")));
  EXPECT_THAT(files.notes.lines, testing::Contains(HasSubstr("PaddleNLP cannot load moments of O2")));
}

struct Refusal {
  const char* word;
  std::function<void(Tensors&)> spoil;
  std::vector<std::string> says;
};

plan::CatalogTensor& find(Tensors& tensors, const char* section, const std::string& name) {
  const auto at = std::ranges::find_if(tensors, [&](const auto& t) { return t.section == section && t.name == name; });
  if (at == tensors.end()) throw std::out_of_range(name);
  return *at;
}

const std::vector<Refusal>& refusals() {
  static const std::vector<Refusal> all = {
      {"paddlenlp",
       [](Tensors& t) { find(t, "optimizer", "lm_head.weight/moment1_0").name = "lm_head.weight.exp_avg"; },
       {"'lm_head.weight.exp_avg' of section optimizer is not called", "PaddleNLP would not find it"}},
      {"paddleformers",
       [](Tensors& t) { find(t, "optimizer", "lm_head.weight/moment1_0").name = "a/b/moment1_0"; },
       {"'a/b/moment1_0' of section optimizer is not called"}},
      {"paddlenlp",
       [](Tensors& t) { find(t, "optimizer", "lm_head.weight/moment2_0").name = "lm_head.weight/velocity_0"; },
       {"'llama.embed_tokens.weight/velocity_0' is missing", "PaddleNLP would not resume"}},
      {"paddlenlp",
       [](Tensors& t) {
         add_states(t, "llama.layers.7.mlp.gate_proj.weight", {8, 12});
       },
       {"states of 'llama.layers.7.mlp.gate_proj.weight', which is no weight of the model"}},
      {"paddlenlp",
       [](Tensors& t) { find(t, "model", "lm_head.weight").dtype = DType::kU16; },
       {"'lm_head.weight' (section model) is U16, which is BF16 in files of PaddleNLP"}},
      {"paddleformers",
       [](Tensors& t) {
         t.push_back({"ema", "w", DType::kU16, {1}});
       },
       {"'w' (section ema) is U16"}},
      {"paddleformers",
       [](Tensors& t) { find(t, "model", "lm_head.weight").dtype = DType::kF8E8M0; },
       {"'lm_head.weight' (section model) is F8_E8M0, which PaddleFormers does not read"}},
      {"paddlenlp",
       [](Tensors& t) {
         find(t, "model", "llama.layers.0.mlp.gate_proj.weight").shape = {12, 8};
       },
       {"'llama.layers.0.mlp.gate_proj.weight/moment1_0' (section optimizer) is [8, 12], expected [12, 8] by its "
        "weight",
        "PaddleNLP has linear weights [in, out]"}},
      {"paddleformers",
       [](Tensors& t) {
         find(t, "master_weights", "model.layers.0.mlp.gate_proj.weight").shape = {12, 8};
       },
       {"'model.layers.0.mlp.gate_proj.weight' (section master_weights) is [12, 8], expected [8, 12] by its weight",
        "PaddleFormers has linear weights [out, in]"}},
      {"paddlenlp",
       [](Tensors& t) {
         for (const char* state : {"/moment1_0", "/moment2_0"}) {
           t.push_back({"optimizer",
                        std::string("mlp.gate_up_fused_proj.weight") + state,
                        state[7] == '1' ? DType::kI8 : DType::kU8,
                        {8, 24}});
         }
       },
       {"'mlp.gate_up_fused_proj.weight': PaddleNLP takes wrong scales of fused weights"}},
      {"paddleformers",
       [](Tensors& t) {
         t.push_back({"optimizer", "model.layers.0.mlp.up_gate_proj.weight/moment1_0", DType::kI8, {8, 24}});
       },
       {"'model.layers.0.mlp.up_gate_proj.weight': PaddleFormers takes wrong scales of fused weights"}},
      {"paddlenlp",
       [](Tensors& t) {
         t.insert(t.begin(), {"model", "qwen.h.0.attn.c_attn.weight", DType::kBF16, {8, 24}});
         t.push_back({"optimizer", "qwen.h.0.attn.c_attn.weight/moment1_0", DType::kI8, {8, 24}});
         std::erase_if(t, [](const auto& tensor) { return tensor.name.starts_with("llama."); });
       },
       {"'qwen.h.0.attn.c_attn.weight': PaddleNLP takes wrong scales of fused weights"}},
  };
  return all;
}

TEST(PaddleFiles, RefusesWhatItsLoadersWouldNotFind) {
  for (const Refusal& refusal : refusals()) {
    Tensors tensors = tied_model(package(refusal.word));
    refusal.spoil(tensors);
    const std::string text =
        message_of_error(ErrorKind::kUsage, [&] { static_cast<void>(check(tensors, refusal.word)); });
    for (const std::string& part : refusal.says) EXPECT_THAT(text, HasSubstr(part));
    EXPECT_THAT(text, testing::Not(HasSubstr("\n")));
  }
}

/// The ranks divide the look-ups: exactly one rank does each look-up.
TEST(PaddleFiles, SharesOfAnyNumberOfRanksFindTheSame) {
  Tensors tensors = tied_model(package("paddlenlp"));
  for (int i = 0; i < 9; ++i) {
    const std::string name = "llama.layers." + std::to_string(i + 1) + ".norm.weight";
    tensors.push_back({"model", name, DType::kF32, {8}});
    add_states(tensors, name, i == 5 ? std::vector<std::uint64_t>{9} : std::vector<std::uint64_t>{8});
  }
  const auto size = static_cast<std::uint32_t>(tensors.size());
  for (const std::uint32_t ranks : {1U, 2U, 7U, size, size + 3}) {
    std::vector<std::string> found;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      try {
        (void)check(tensors, "paddlenlp", {size * rank / ranks, size * (rank + 1) / ranks});
      } catch (const Error& error) {
        found.emplace_back(error.what());
      }
    }
    ASSERT_FALSE(found.empty()) << ranks;
    EXPECT_THAT(found[0], HasSubstr("'llama.layers.6.norm.weight/moment1_0' (section optimizer) is [9], expected [8]"));
  }
}

TEST(PaddleFiles, RefusesWhatTheConfigurationDenies) {
  const base::Json config = base::Json::parse(kConfig, "config.json");
  const auto refusal = [&](const Tensors& tensors, const char* word) {
    return message_of_error(ErrorKind::kUsage,
                            [&] { interop::check_config(package(word), check(tensors, word), config, 0); });
  };
  Tensors names = tied_model(package("paddlenlp"));
  for (auto& tensor : names) {
    if (tensor.name.starts_with("llama.")) tensor.name.replace(0, 5, "model");
  }
  EXPECT_THAT(
      refusal(names, "paddlenlp"),
      HasSubstr("'model.layers.0.input_layernorm.weight': names of PaddleNLP's model llama begin with 'llama.'"));
  Tensors orders = tied_model(package("paddleformers"));
  for (auto& tensor : orders) {
    if (tensor.name.find("gate_proj") != std::string::npos && tensor.shape.size() == 2) {
      std::swap(tensor.shape[0], tensor.shape[1]);
    }
  }
  EXPECT_THAT(
      refusal(orders, "paddleformers"),
      HasSubstr("'model.layers.0.mlp.gate_proj.weight' is [8, 12]: PaddleFormers has linear weights [out, in]"));
  Tensors ties = tied_model(package("paddlenlp"));
  std::erase_if(ties, [](const auto& tensor) {
    return tensor.section == "optimizer" && tensor.name.starts_with("llama.embed_tokens");
  });
  EXPECT_THAT(refusal(ties, "paddlenlp"),
              HasSubstr("section optimizer has 'lm_head.weight' and not 'llama.embed_tokens.weight', which is the same "
                        "weight (tie_word_embeddings): PaddleNLP looks for both on several processes"));
  EXPECT_NO_THROW(interop::check_config(package("paddlenlp"), check(ties, "paddlenlp"), config, 1));
}

TEST(PaddleFiles, IndexesSayWhatLoadersAskFor) {
  StateToWrite state;
  state.values = {{interop::kPaddleValue, interop::encode_paddle_state({"O1", 1, true, false})},
                  {"scheduler", R"({"last_epoch": 7, "last_lr": 0.5})"}};
  state.config = kConfig;
  state.step = 7;
  const auto files = files_of(tied_model(package("paddleformers")), "paddleformers", state);
  EXPECT_THAT(files.texts,
              UnorderedElementsAre(Pair("model.safetensors.index.json", testing::EndsWith("    }\n}")),
                                   Pair("master_weights.safetensors.index.json", testing::EndsWith("    }\n}")),
                                   Pair("optimizer.safetensors.index.json",
                                        testing::EndsWith("    },\n    \"master_weights\": true,\n    "
                                                          "\"quant_ckpt_resume_times\": 2\n}")),
                                   Pair("scheduler.pdparams", interop::encode_scheduler(7, 0.5)),
                                   Pair("trainer_state.bin", HasSubstr("global_step"))));
  EXPECT_EQ(interop::parse_paddle_state(files.values.at(interop::kPaddleValue)),
            (interop::PaddleState{"O0", 2, true, false}));
  EXPECT_THAT(files.notes.lines, IsEmpty());

  state.carried = {"scheduler.pdparams", "trainer_state.bin"};
  EXPECT_EQ(files_of(tied_model(package("paddleformers")), "paddleformers", state).texts.size(), 3U);
  state = {};
  const auto bare = files_of(tied_model(package("paddlenlp")), "paddlenlp", state);
  EXPECT_EQ(bare.texts.size(), 3U);
  EXPECT_THAT(bare.notes.lines,
              ElementsAre(HasSubstr("nothing gives a scheduler.pdparams"), HasSubstr("nothing says the step")));
}

TEST(PaddleFiles, AdamNeedsItsPowers) {
  Tensors tensors = tied_model(package("paddlenlp"));
  EXPECT_EQ(interop::problem_of_adam(package("paddlenlp"), check(tensors, "paddlenlp")), "");
  std::erase_if(tensors, [](const auto& tensor) { return tensor.name.ends_with("/beta2_pow_acc_0"); });
  const std::string problem = interop::problem_of_adam(package("paddlenlp"), check(tensors, "paddlenlp"));
  EXPECT_THAT(problem, HasSubstr("no '<parameter>/beta2_pow_acc_0': PaddleNLP resumes from them only with "
                                 "ignore_load_lr_and_optim"));
  const auto checked = interop::form_called("paddlenlp").check(plan::PackedCatalog(plan::make_catalog(tensors)), {});
  EXPECT_EQ(checked->problem(), problem);
}

TEST(PaddleFiles, MastersInPlaceOfTheModelAreSaidToBeThere) {
  Tensors tensors = tied_model(package("paddlenlp"));
  std::erase_if(tensors, [](const auto& tensor) { return tensor.section == "master_weights"; });
  for (auto& tensor : tensors) tensor.dtype = DType::kF32;
  StateToWrite state;
  state.values = {{interop::kPaddleValue, interop::encode_paddle_state({"O0", 0, true, true})}};
  const auto with = files_of(tensors, "paddlenlp", state);
  EXPECT_THAT(with.texts.at("optimizer.safetensors.index.json"), HasSubstr("\"master_weights\": true"));
  EXPECT_THAT(with.values.at(interop::kPaddleValue), HasSubstr("skip_save_model_weight"));
  const auto without = files_of(tensors, "paddlenlp", {});
  EXPECT_THAT(without.texts.at("optimizer.safetensors.index.json"), HasSubstr("\"master_weights\": false"));
}

TEST(PaddleFiles, AdaptersHaveTheirType) {
  Tensors tensors;
  tensors.push_back({"adapter", "q_proj.lora_A", DType::kF32, {8, 2}});
  StateToWrite state;
  const char* index = "peft_model.safetensors.index.json";
  EXPECT_THAT(files_of(tensors, "paddlenlp", state).texts.at(index), HasSubstr("\"type\": \"lora\""));
  state.carried = {"prefix_config.json"};
  EXPECT_THAT(files_of(tensors, "paddlenlp", state).texts.at(index), HasSubstr("\"type\": \"ptuning\""));
}

TEST(PaddleFiles, RefusesOtherCodecsAndOmissionsThatLoadersDoNotMake) {
  const auto refusal = [&](const Quantisation& quantisation) {
    return message_of_error(ErrorKind::kUsage,
                            [&] { interop::form_called("paddlenlp").check_options(quantisation, 0); });
  };
  Quantisation quantisation;
  quantisation.codecs = {{"optimizer", "q8"}};
  EXPECT_THAT(refusal(quantisation), HasSubstr("PaddleNLP reads no moments in q8"));
  quantisation.disable_ckpt_quant = true;
  EXPECT_NO_THROW(interop::form_called("paddlenlp").check_options(quantisation, 0));
  quantisation = {};
  quantisation.codecs = {{"ema", "paddle-o1"}, {"optimizer", "paddle-o2"}};
  EXPECT_THAT(refusal(quantisation), HasSubstr("give no codec for section ema"));
  quantisation.codecs = {{"optimizer", "paddle-o1"}, {"ema", "off"}};
  EXPECT_NO_THROW(interop::form_called("paddlenlp").check_options(quantisation, 0));
  quantisation.skip_save_model_weight = true;
  EXPECT_THAT(refusal(quantisation), HasSubstr("leave skip_save_model_weight out"));
  quantisation.skip_save_model_weight = false;
  quantisation.remove_master_weight = true;
  EXPECT_NO_THROW(interop::form_called("paddlenlp").check_options(quantisation, 0));
  quantisation.codecs.clear();
  for (const auto& [form, cards] : {std::pair("paddlenlp", 1), std::pair("paddleformers", 0)}) {
    const auto check = [&, form = form, cards = static_cast<std::uint64_t>(cards)] {
      interop::form_called(form).check_options(quantisation, cards);
    };
    EXPECT_THAT(message_of_error(ErrorKind::kUsage, check), HasSubstr("leave remove_master_weight out")) << form;
  }
}

}  // namespace
}  // namespace cairn::test
