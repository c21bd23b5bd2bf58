// Conversions to Paddle's forms, in small windows on several ranks; tests/interop and tests/paddle read the files with
// other programs.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>

#include "cairn/error.hpp"
#include "coded_files.hpp"
#include "conversion/convert.hpp"
#include "environment.hpp"
#include "expect_error.hpp"
#include "opening/open.hpp"
#include "quant/cast.hpp"
#include "simulated.hpp"
#include "temp_dir.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::uint64_t kHidden = 150;
constexpr std::uint64_t kInner = 217;

std::vector<std::string> convert_on(int ranks, const fs::path& from, const fs::path& to, const std::string& form,
                                    const std::string& quant = "keep", std::uint64_t cards = 0,
                                    bool keep_names = false) {
  std::vector<std::string> notes;
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    conversion::ConvertOptions options;
    options.write.engine.name = "posix";
    options.write.files.block_bytes = 4096;
    options.write.files.max_bytes = 60'000;
    options.write.limits.memory_budget_bytes = 64 << 10;
    options.read = {"posix", 64 << 10, {}};
    options.to = form;
    options.quant = quant;
    options.processes = cards;
    options.keep_names = keep_names;
    auto report = conversion::convert(communicator, from, to, options);
    if (communicator.rank() == 0) notes = std::move(report.notes.lines);
  });
  return notes;
}

/// A model whose linear weights are [out, in] or [in, out]: its shapes show which, given the sizes in config.json.
FileTensors write_model(const fs::path& directory, bool out_in, const char* prefix) {
  fs::create_directories(directory);
  FileTensors model;
  const std::string stem = prefix + std::string("layers.0.");
  const auto linear = [&](std::uint64_t in, std::uint64_t out) {
    return counted(DType::kBF16, out_in ? std::vector{out, in} : std::vector{in, out});
  };
  model[stem + "mlp.gate_proj.weight"] = linear(kHidden, kInner);
  model[stem + "mlp.down_proj.weight"] = linear(kInner, kHidden);
  model[stem + "self_attn.q_proj.weight"] = linear(kHidden, kHidden);
  model[stem + "input_layernorm.weight"] = counted(DType::kBF16, {kHidden});
  model[prefix + std::string("embed_tokens.weight")] = counted(DType::kBF16, {301, kHidden});
  write_safetensors(directory / "model.safetensors", model, {});
  write_file(directory / "config.json",
             R"({"model_type": "llama", "hidden_size": 150, "intermediate_size": 217, "vocab_size": 301})");
  return model;
}

bool is_linear(const std::string& name) { return name.find("_proj.") != std::string::npos; }

using State = std::map<std::string, FileTensors>;

void write_index(const fs::path& directory, const std::string& section, const std::map<std::string, std::string>& files,
                 const std::string& extra = "") {
  std::string map;
  for (const auto& [name, file] : files) map += (map.empty() ? "\"" : ", \"") + name + "\": \"" + file + "\"";
  write_file(directory / (section + ".safetensors.index.json"),
             R"({"metadata": {"total_size": 0}, "weight_map": {)" + map + "}" + extra + "}");
}

/// Writes a merged Paddle checkpoint, like one that a single process saves.
void write_merged(const fs::path& directory, const State& state, const std::string& format) {
  for (const auto& [section, tensors] : state) {
    const std::string file = section + "-00001-of-00001.safetensors";
    write_safetensors(directory / file, tensors, {{"format", section == "model" ? format : "np"}});
    std::map<std::string, std::string> files;
    for (const auto& [name, tensor] : tensors) files[name] = file;
    write_index(directory, section, files, section == "optimizer" ? R"(, "master_weights": true)" : "");
  }
}

TEST(PaddleConvert, TransposesLinearWeightsInSmallWindowsOnAnyNumberOfRanks) {
  const TempDir root;
  const FileTensors model = write_model(root / "hf", true, "model.");
  for (const int ranks : {1, 3}) {
    const fs::path to = root / ("nlp" + std::to_string(ranks));
    convert_on(ranks, root / "hf", to, "paddlenlp");
    const FileTensors found = read_section(to, "model");
    ASSERT_EQ(found.size(), model.size());
    for (const auto& [name, tensor] : model) {
      FileTensor expected = is_linear(name) ? transposed(tensor) : tensor;
      expected.dtype = DType::kU16;
      EXPECT_EQ(found.at("llama" + name.substr(5)), expected) << name << " on " << ranks << " ranks";
    }
    // Converts back, using the facts that the first conversion recorded.
    const fs::path back = root / ("formers" + std::to_string(ranks));
    convert_on(4 - ranks, to, back, "paddleformers");
    EXPECT_EQ(read_section(back, "model"), model);
  }
}

TEST(PaddleConvert, LeavesWhatIsInOrderAsItIs) {
  const TempDir root;
  const FileTensors model = write_model(root / "hf", true, "model.");
  convert_on(2, root / "hf", root / "formers", "paddleformers");
  EXPECT_EQ(read_section(root / "formers", "model"), model);
  EXPECT_THAT(read_file(root / "formers/model.safetensors.index.json"),
              HasSubstr("\"model.layers.0.mlp.gate_proj.weight\""));
}

/// A model with its dimensions in Hugging Face's order.
FileTensors write_hf(const fs::path& directory, const std::string& config,
                     const std::vector<std::pair<std::string, std::vector<std::uint64_t>>>& weights) {
  fs::create_directories(directory);
  FileTensors model;
  model["model.embed_tokens.weight"] = counted(DType::kBF16, {41, 24});
  model["lm_head.weight"] = counted(DType::kBF16, {41, 24});
  for (const auto& [name, shape] : weights) model["model.layers.0." + name] = counted(DType::kBF16, shape);
  write_safetensors(directory / "model.safetensors", model, {{"format", "pt"}});
  write_file(directory / "config.json", R"({"hidden_size": 24, "vocab_size": 41, "model_type": )" + config + "}");
  return model;
}

/// Converts to PaddleNLP, where all matrices except `kept` are transposed, and back.
void expect_both_ways(const fs::path& root, const FileTensors& model, const std::string& prefix,
                      const std::set<std::string>& kept) {
  convert_on(2, root / "hf", root / "nlp", "paddlenlp");
  const FileTensors found = read_section(root / "nlp", "model");
  ASSERT_EQ(found.size(), model.size());
  for (const auto& [name, tensor] : model) {
    FileTensor expected = kept.contains(name) || tensor.shape.size() != 2 ? tensor : transposed(tensor);
    expected.dtype = DType::kU16;
    EXPECT_EQ(found.at(name.starts_with("model.") ? prefix + name.substr(5) : name), expected) << name;
  }
  convert_on(1, root / "nlp", root / "formers", "paddleformers");
  EXPECT_EQ(read_section(root / "formers", "model"), model);
  for (const char* package : {"nlp", "formers"}) {
    const fs::path back = root / (package + std::string("-back"));
    convert_on(2, root / package, back, "hf");
    EXPECT_EQ(read_section(back, "model"), model) << package;
  }
  convert_on(1, root / "hf", root / "straight", "paddleformers");
  EXPECT_EQ(read_section(root / "straight", "model"), model);
}

TEST(PaddleConvert, TurnsExpertsAndRoutersOfTheirFamilyBothWays) {
  const std::string kEmbedding = "model.embed_tokens.weight";
  const std::vector<std::pair<std::string, std::vector<std::uint64_t>>> experts = {
      {"mlp.gate.weight", {3, 24}},
      {"mlp.experts.0.gate_proj.weight", {17, 24}},
      {"mlp.experts.0.down_proj.weight", {24, 17}},
      {"input_layernorm.weight", {24}}};
  {
    const TempDir root;
    expect_both_ways(root.path(), write_hf(root / "hf", R"("qwen3_moe")", experts), "model", {kEmbedding});
  }
  {
    const TempDir root;
    auto weights = experts;
    weights.push_back({"self_attn.kv_a_proj_with_mqa.weight", {9, 24}});
    weights.push_back({"mlp.gate.e_score_correction_bias", {3}});
    expect_both_ways(root.path(), write_hf(root / "hf", R"("deepseek_v3")", weights), "deepseek_v3", {kEmbedding});
  }
  {
    const TempDir root;
    const std::string moe = "block_sparse_moe.";
    const FileTensors model = write_hf(root / "hf", R"("mixtral")",
                                       {{moe + "gate.weight", {3, 24}},
                                        {moe + "experts.1.w1.weight", {17, 24}},
                                        {moe + "experts.1.w2.weight", {24, 17}},
                                        {moe + "experts.1.w3.weight", {17, 24}}});
    expect_both_ways(root.path(), model, "mixtral", {kEmbedding});
  }
  {
    const TempDir root;
    expect_both_ways(root.path(), write_hf(root / "hf", R"("glm4_moe")", experts), "model",
                     {kEmbedding, "model.layers.0.mlp.gate.weight"});
  }
}

TEST(PaddleConvert, GivesStatesTheirModelsNamesAndOrder) {
  const TempDir root;
  const std::string name = "layers.0.self_attn.q_proj.weight";
  const FileTensor weight = counted(DType::kBF16, {24, 17});
  const FileTensor state = counted(DType::kF32, {24, 17});
  const State states = {
      {"model", {{"llama." + name, weight}, {"llama.norm.weight", counted(DType::kBF16, {24})}}},
      {"master_weights", {{"llama." + name, state}}},
      {"optimizer", {{"llama." + name + "/moment1_0", state}, {"llama." + name + "/moment2_0", state}}}};
  fs::create_directories(root / "nlp");
  write_merged(root / "nlp", states, "np");
  write_file(root / "nlp/config.json", R"({"model_type": "llama", "hidden_size": 24})");
  EXPECT_THAT(convert_on(2, root / "nlp", root / "hf", "hf"), testing::Contains(HasSubstr("Hugging Face's names")));
  EXPECT_EQ(read_section(root / "hf", "model").at("model." + name), transposed(weight));
  EXPECT_EQ(read_section(root / "hf", "master_weights").at("model." + name), transposed(state));
  EXPECT_EQ(read_section(root / "hf", "optimizer").at("model." + name + "/moment2_0"), transposed(state));
  convert_on(3, root / "hf", root / "again", "paddlenlp");
  for (const char* section : {"master_weights", "optimizer"}) {
    EXPECT_EQ(read_section(root / "again", section), states.at(section)) << section;
  }
  convert_on(1, root / "nlp", root / "kept", "hf", "keep", 0, true);
  EXPECT_EQ(read_section(root / "kept", "optimizer"), states.at("optimizer"));
}

TEST(PaddleConvert, RefusesToMakeHuggingFaceModelsThatWouldNotBeFound) {
  const auto refusal = [](const std::string& config, const std::string& section, const std::string& name) {
    const TempDir root;
    fs::create_directories(root / "nlp");
    write_merged(root / "nlp", {{section, {{name, counted(DType::kBF16, {24, 17})}}}}, "np");
    write_file(root / "nlp/config.json", config);
    const std::string message =
        message_of_error(ErrorKind::kUsage, [&] { convert_on(2, root / "nlp", root / "hf", "hf"); });
    EXPECT_FALSE(fs::exists(root / "hf"));
    convert_on(2, root / "nlp", root / "kept", "hf", "keep", 0, true);
    EXPECT_FALSE(read_section(root / "kept", section == "peft_model" ? "adapter" : "model").empty());
    return message;
  };
  const std::string llama = R"({"model_type": "llama", "hidden_size": 24})";
  EXPECT_THAT(refusal(R"({"model_type": "gpt", "hidden_size": 24})", "model", "gpt.decoder.layers.0.linear1.weight"),
              HasSubstr("have other names there, and are not renamed; --keep-names"));
  EXPECT_THAT(refusal("{}", "model", "net.0.weight"), HasSubstr("config.json says no model_type; --keep-names"));
  EXPECT_THAT(refusal(llama, "model", "a"), HasSubstr("no weight is called as those of llama"));
  EXPECT_THAT(refusal(llama, "model", "llama.layers.0.self_attn.qkv_proj.weight"),
              HasSubstr("is several weights in one"));
  EXPECT_THAT(refusal(llama, "peft_model", "llama.layers.0.self_attn.q_proj.lora_A"), HasSubstr("PEFT does not load"));
}

/// The names of the model decide; without a model, those of the parameters that its state is of.
TEST(PaddleConvert, JudgesNamesBySectionsThatHaveWeights) {
  const auto convert_with = [](const State& states) {
    const TempDir root;
    fs::create_directories(root / "nlp");
    write_merged(root / "nlp", states, "np");
    write_file(root / "nlp/config.json", R"({"model_type": "llama", "hidden_size": 24})");
    convert_on(2, root / "nlp", root / "hf", "hf");
  };
  const FileTensor state = counted(DType::kF32, {24});
  const auto moments_of = [&](const std::string& name) {
    return FileTensors{{name + "/moment1_0", state}, {name + "/moment2_0", state}};
  };
  const FileTensors model = {{"a", state}};
  const std::vector<State> refused = {{{"model", model}, {"optimizer", moments_of("a")}},
                                      {{"model", model}, {"optimizer", moments_of("llama.norm.weight")}},
                                      {{"master_weights", model}}};
  for (const State& states : refused) {
    EXPECT_THAT(message_of_error(ErrorKind::kUsage, [&] { convert_with(states); }),
                HasSubstr("no weight is called as those of llama"));
  }
  convert_with({{"master_weights", {{"llama.norm.weight", state}}}});
}

/// In PaddleFormers' files, a router is [experts, hidden] in the model, but [hidden, experts] in its states.
TEST(PaddleConvert, TakesRoutersOfMergedCheckpoints) {
  const TempDir root;
  const FileTensors model = write_hf(root / "formers", R"("qwen3_moe")",
                                     {{"mlp.gate.weight", {3, 24}}, {"mlp.experts.0.up_proj.weight", {17, 24}}});
  fs::remove(root / "formers/model.safetensors");
  State state = {{"model", model}, {"master_weights", {}}, {"optimizer", {}}};
  for (const auto& [name, weight] : model) {
    const bool is_turned = name.find("layers") != std::string::npos;
    const std::vector<std::uint64_t> shape = is_turned ? std::vector{weight.shape[1], weight.shape[0]} : weight.shape;
    state["master_weights"][name] = counted(DType::kF32, shape);
    for (const char* moment : {"/moment1_0", "/moment2_0"}) {
      state["optimizer"][name + moment] = counted(DType::kF32, shape);
    }
    for (const char* power : {"/beta1_pow_acc_0", "/beta2_pow_acc_0"}) {
      state["optimizer"][name + power] = counted(DType::kF32, {1});
    }
  }
  write_merged(root / "formers", state, "pt");
  convert_on(2, root / "formers", root / "nlp", "paddlenlp");
  const FileTensors found = read_section(root / "nlp", "model");
  for (const char* weight : {"mlp.gate.weight", "mlp.experts.0.up_proj.weight"}) {
    const std::string name = std::string("model.layers.0.") + weight;
    FileTensor expected = transposed(model.at(name));
    expected.dtype = DType::kU16;
    EXPECT_EQ(found.at(name), expected) << name;
    EXPECT_EQ(read_section(root / "nlp", "master").at(name), state["master_weights"][name]) << name;
  }
  EXPECT_EQ(read_section(root / "nlp", "master").at("lm_head.weight"),
            transposed(state["master_weights"]["lm_head.weight"]));
  convert_on(1, root / "nlp", root / "back", "paddleformers");
  EXPECT_EQ(read_section(root / "back", "model"), model);
  EXPECT_EQ(read_section(root / "back", "master"), state["master_weights"]);
}

TEST(PaddleConvert, PaddedVocabulariesAreNoSign) {
  for (const char* vocabulary : {"41", "39", "24", "null"}) {
    const TempDir root;
    const FileTensors model =
        write_hf(root / "hf", R"("llama")", {{"mlp.gate_proj.weight", {17, 24}}, {"mlp.down_proj.weight", {24, 17}}});
    write_file(root / "hf/config.json",
               std::string(R"({"model_type": "llama", "hidden_size": 24, "vocab_size": )") + vocabulary + "}");
    expect_both_ways(root.path(), model, "llama", {"model.embed_tokens.weight"});
  }
}

TEST(PaddleConvert, RefusesModelsThatItDoesNotKnow) {
  const TempDir root;
  const auto refusal = [&](const std::string& form) {
    return message_of_error(ErrorKind::kUsage, [&] { convert_on(1, root / "hf", root / "out", form); });
  };
  write_hf(root / "hf", R"("unheard_of")", {{"mlp.gate_proj.weight", {17, 24}}, {"mlp.gate.weight", {3, 24}}});
  EXPECT_THAT(refusal("paddlenlp"), HasSubstr("nothing is known of model_type 'unheard_of'"));
  write_hf(root / "hf", "3", {{"mlp.gate_proj.weight", {17, 24}}, {"mlp.gate.weight", {3, 24}}});
  EXPECT_THAT(refusal("paddlenlp"), HasSubstr("config.json says no model_type"));
  convert_on(1, root / "hf", root / "formers", "paddleformers");  // the form keeps the order of Hugging Face

  fs::remove_all(root / "hf");
  FileTensors model;
  model["llama.layers.0.self_attn.qkv_proj.weight"] = counted(DType::kU16, {24, 48});
  fs::create_directories(root / "hf");
  write_file(root / "hf/config.json", R"({"model_type": "llama", "hidden_size": 24})");
  write_merged(root / "hf", {{"model", model}}, "np");
  EXPECT_THAT(refusal("paddleformers"), HasSubstr("they are not split"));
  convert_on(1, root / "hf", root / "nlp", "paddlenlp");
  EXPECT_EQ(read_section(root / "nlp", "model"), model);
}

/// Only config.json shows that query, key and value are of different sizes.
TEST(PaddleConvert, DecodesCodesThatThePackageWouldMisreadByConfigJson) {
  const TempDir root;
  const std::string weight = "model.layers.0.self_attn.qkv_proj.weight";
  for (const bool is_misread : {true, false}) {
    const fs::path folder = root / (is_misread ? "misread" : "read");
    fs::create_directories(folder / "one");
    write_file(folder / "one/config.json",
               fmt::format(R"({{"model_type": "ernie4_5", "hidden_size": 64, "num_attention_heads": 4,
                              "num_key_value_heads": {}}})",
                           is_misread ? 2 : 4));
    const std::vector<std::uint64_t> shape = {64, is_misread ? 128U : 192U};
    const std::vector<float> halves(shape[0] * shape[1], 0.5F);
    const auto bytes = std::as_bytes(std::span(halves));
    const FileTensor moment{DType::kF32, shape, base::Bytes(bytes.begin(), bytes.end())};
    FileTensors states = {{weight + "/moment1_0", moment}, {weight + "/moment2_0", moment}};
    for (const char* power : {"/beta1_pow_acc_0", "/beta2_pow_acc_0"}) {
      states[weight + power] = counted(DType::kF32, {1});
    }
    const FileTensors model = {{weight, counted(DType::kBF16, shape)}};
    const FileTensors masters = {{weight, counted(DType::kF32, shape)}};
    write_merged(folder / "one", {{"model", model}, {"optimizer", states}, {"master_weights", masters}}, "pt");
    convert_on(1, folder / "one", folder / "coded", "hf", "paddle-o1", 0, true);
    const auto notes = convert_on(1, folder / "coded", folder / "out", "paddleformers", "keep", 2);
    const bool is_told = std::ranges::any_of(
        notes, [](const std::string& note) { return note.find("wrong scales of fused weights") != std::string::npos; });
    EXPECT_EQ(is_told, is_misread);
    const FileTensors written = read_section(folder / "out", "optimizer");
    EXPECT_EQ(written.at(weight + "/moment1_0").dtype, is_misread ? DType::kF32 : DType::kI8);
  }
}

/// Flat slices of two sharding ranks. In the refused case, each was merged from slices of two tensor-parallel ranks.
TEST(PaddleConvert, RefusesFlatSlicesOfTensorParallelRanksInMergedFiles) {
  constexpr std::uint64_t kSide = 64;
  constexpr std::uint64_t kElements = kSide * kSide;
  const std::string name = "model.layers.0.self_attn.o_proj.weight";
  std::vector<float> values(kElements);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  FileTensor weight{DType::kBF16, {kSide, kSide}, base::Bytes(2 * kElements)};
  quant::cast_values(DType::kF32, std::as_bytes(std::span(values)), DType::kBF16, weight.bytes);
  for (const bool is_of_tensor_parallel : {false, true}) {
    const TempDir root;
    fs::create_directories(root / "formers");
    write_file(root / "formers/config.json", R"({"model_type": "llama", "hidden_size": 64})");
    write_merged(root / "formers", {{"model", {{name, weight}}}}, "np");
    std::map<std::string, std::string> files_of_masters;
    std::map<std::string, std::string> files_of_states;
    for (const std::size_t shard : {0U, 1U}) {
      // Quarters of the flattened weight: tensor-parallel rank 0 has 0 and 1, rank 1 has 2 and 3.
      std::vector<float> slice;
      for (const std::size_t part : {0U, 1U}) {
        const std::size_t quarter = is_of_tensor_parallel ? part * 2 + shard : shard * 2 + part;
        const auto begin = values.begin() + static_cast<std::ptrdiff_t>(quarter * kElements / 4);
        slice.insert(slice.end(), begin, begin + kElements / 4);
      }
      const auto bytes = std::as_bytes(std::span(slice));
      const FileTensor flat{DType::kF32, {kElements / 2}, base::Bytes(bytes.begin(), bytes.end())};
      const std::string number = "-0000" + std::to_string(shard + 1) + "-of-00002.safetensors";
      FileTensors states = {{name + "/moment1_0", flat}, {name + "/moment2_0", flat}};
      for (const char* power : {"/beta1_pow_acc_0", "/beta2_pow_acc_0"})
        states[name + power] = counted(DType::kF32, {1});
      write_safetensors(root / ("formers/optimizer" + number), states, {{"format", "np"}});
      write_safetensors(root / ("formers/master_weights" + number), {{name, flat}}, {{"format", "np"}});
      files_of_masters[name] = "master_weights" + number;
      for (const auto& [state, tensor] : states) files_of_states[state] = "optimizer" + number;
    }
    write_index(root / "formers", "master_weights", files_of_masters);
    write_index(root / "formers", "optimizer", files_of_states, R"(, "master_weights": true)");
    const auto convert = [&] { convert_on(1, root / "formers", root / "out", "hf", "keep", 0, true); };
    if (is_of_tensor_parallel) {
      EXPECT_THAT(message_of_error(ErrorKind::kFormat, convert), HasSubstr("they are of tensor-parallel ranks"));
    } else {
      convert();
      const FileTensor master = read_section(root / "out", "master").at(name);
      EXPECT_EQ(master.shape, weight.shape);
      EXPECT_EQ(std::memcmp(master.bytes.data(), values.data(), master.bytes.size()), 0);
    }
  }
}

TEST(PaddleConvert, RefusesToTransposeWeightsWithScalesOfBlocks) {
  const TempDir directory;
  FileTensors model = write_model(directory / "hf", true, "model.");
  // Catalogs have names in natural order: 2 before 10.
  for (const char* layer : {"2", "9", "10", "11"}) {
    model[std::string("model.layers.") + layer + ".mlp.gate_proj.weight"] = counted(DType::kBF16, {kInner, kHidden});
  }
  for (const char* layer : {"0", "2", "10"}) {
    const std::string gate = std::string("model.layers.") + layer + ".mlp.gate_proj.weight";
    for (const char* end : {"_scale_inv", "_scale"}) {
      FileTensors quantised = model;
      quantised[gate] = counted(DType::kF8E4M3, {kInner, kHidden});
      quantised[gate + end] = counted(DType::kF32, {2, 2});
      write_safetensors(directory / "hf" / "model.safetensors", quantised, {});
      expect_error(ErrorKind::kUsage, [&] { convert_on(2, directory / "hf", directory / "nlp", "paddlenlp"); },
                   {gate, "scales in '" + gate + end, "dequantise"});
    }
    FileTensors coded = model;
    coded[gate] = counted(DType::kI8, {kInner, kHidden});
    write_safetensors(directory / "hf" / "model.safetensors", coded, {});
    expect_error(ErrorKind::kUsage, [&] { convert_on(2, directory / "hf", directory / "nlp", "paddlenlp"); },
                 {gate, "cannot be transposed", "dequantise"});
  }
}

TEST(PaddleConvert, QueriesOfDeepSeekKeepTheirOrderInPaddleFormers) {
  const TempDir directory;
  constexpr std::uint64_t kQuery = 90;
  const std::string query = "deepseek_v3.layers.0.self_attn.q_proj.weight";
  const std::string gate = "deepseek_v3.layers.0.mlp.gate_proj.weight";
  const auto f32 = [](std::uint64_t rows, std::uint64_t columns) { return counted(DType::kF32, {rows, columns}); };
  State state;
  state["model"] = {{query, counted(DType::kBF16, {kHidden, kQuery})},
                    {gate, counted(DType::kBF16, {kHidden, kInner})}};
  for (const auto& [name, shape] : {std::pair(query, kQuery), std::pair(gate, kInner)}) {
    for (const char* moment : {"/moment1_0", "/moment2_0"}) state["optimizer"][name + moment] = f32(kHidden, shape);
    for (const char* power : {"/beta1_pow_acc_0", "/beta2_pow_acc_0"}) {
      state["optimizer"][name + power] = counted(DType::kF32, {1});
    }
  }
  fs::create_directories(directory / "nlp");
  write_merged(directory / "nlp", state, "np");
  write_file(directory / "nlp" / "config.json",
             R"({"model_type": "deepseek_v3", "hidden_size": 150, "intermediate_size": 217})");
  convert_on(2, directory / "nlp", directory / "formers", "paddleformers");
  const auto opened = opening::open_here(directory / "formers");
  std::map<std::string, std::vector<std::uint64_t>> shapes;
  for (const auto& tensor : opened.stored.unpacked().tensors) shapes[tensor.name] = tensor.shape;
  const std::string layer = "model.layers.0.";
  EXPECT_EQ(shapes.at(layer + "self_attn.q_proj.weight"), (std::vector<std::uint64_t>{kHidden, kQuery}));
  EXPECT_EQ(shapes.at(layer + "self_attn.q_proj.weight/moment1_0"), (std::vector<std::uint64_t>{kHidden, kQuery}));
  EXPECT_EQ(shapes.at(layer + "mlp.gate_proj.weight"), (std::vector<std::uint64_t>{kInner, kHidden}));
  EXPECT_EQ(shapes.at(layer + "mlp.gate_proj.weight/moment1_0"), (std::vector<std::uint64_t>{kHidden, kInner}));
}

TEST(PaddleConvert, RefusesWhatItsLoadersWouldNotFind) {
  const TempDir root;
  const auto refusal = [&](const fs::path& from, const char* form, const std::string& quant = "keep",
                           std::uint64_t cards = 0) -> std::string {
    try {
      convert_on(2, from, root / "out", form, quant, cards);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.what();
      EXPECT_FALSE(fs::exists(root / "out"));
      return error.what();
    }
    return "nothing was refused";
  };
  write_model(root / "hf", true, "model.");
  EXPECT_THAT(refusal(root / "hf", "paddlenlp", "q8"), HasSubstr("PaddleNLP reads no moments in q8"));
  EXPECT_THAT(refusal(root / "hf", "paddlenlp", "paddle-o1", 1), HasSubstr("on one card reads no quantised moments"));

  write_model(root / "unknown", true, "model.");
  fs::remove(root / "unknown/config.json");
  EXPECT_THAT(refusal(root / "unknown", "paddlenlp"), HasSubstr("nothing says whether linear weights are [in, out]"));

  FileTensors optimizer;
  optimizer["model.embed_tokens.weight.exp_avg"] = counted(DType::kF32, {301, kHidden});
  write_model(root / "torch", true, "model.");
  write_safetensors(root / "torch/optimizer.safetensors", optimizer, {});
  EXPECT_THAT(refusal(root / "torch", "paddleformers"),
              HasSubstr("tensor 'model.embed_tokens.weight.exp_avg' of section optimizer is not called"));

  FileTensors half;
  half["model.embed_tokens.weight/moment1_0"] = counted(DType::kF32, {301, kHidden});
  half["model.layers.0.input_layernorm.weight/moment2_0"] = counted(DType::kF32, {kHidden});
  write_model(root / "half", true, "model.");
  write_safetensors(root / "half/optimizer.safetensors", half, {});
  EXPECT_THAT(refusal(root / "half", "paddleformers"), HasSubstr("'model.embed_tokens.weight/moment2_0' is missing"));

  FileTensors stray;
  stray["model.other.weight/moment1_0"] = counted(DType::kF32, {3});
  write_model(root / "stray", true, "model.");
  write_safetensors(root / "stray/optimizer.safetensors", stray, {});
  EXPECT_THAT(refusal(root / "stray", "paddleformers"), HasSubstr("'model.other.weight', which is no weight"));
}

}  // namespace
}  // namespace cairn::test
