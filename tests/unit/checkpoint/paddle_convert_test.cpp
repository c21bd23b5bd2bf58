// Conversions to Paddle's forms, in small windows on several ranks; tests/interop and tests/paddle read the files with
// other programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cairn/error.hpp"
#include "coded_files.hpp"
#include "conversion/convert.hpp"
#include "environment.hpp"
#include "opening/open.hpp"
#include "simulated.hpp"
#include "temp_dir.hpp"

namespace cairn::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::uint64_t kHidden = 150;
constexpr std::uint64_t kInner = 217;

std::vector<std::string> convert_on(int ranks, const fs::path& from, const fs::path& to, const std::string& form,
                                    const std::string& quant = "keep", std::uint64_t cards = 0) {
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
    auto report = conversion::convert(communicator, from, to, options);
    if (communicator.rank() == 0) notes = std::move(report.notes);
  });
  return notes;
}

/// A model whose linear weights are [in, out] or [out, in], as its shapes show, and the configuration that says so.
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
    // Converts back, with the facts that the conversion recorded.
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
