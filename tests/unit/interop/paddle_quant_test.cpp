// Quantised Paddle optimizers: the stored tensors of each moment, and every mismatch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "test_directory.hpp"

namespace cairn::interop::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kFile = "optimizer-00001-of-00001.safetensors";

/// The tensors that O1 stores for a matrix "w" [64, 6] and a vector "norm" [6].
std::vector<Tensor> o1_tensors() {
  return {{"w/moment1_0", DType::kI8, {64, 6}},          {"w/moment1_0@scales", DType::kF32, {6}},
          {"w/moment2_0", DType::kU8, {64, 6}},          {"w/moment2_0@min_scales", DType::kF32, {6}},
          {"w/moment2_0@max_scales", DType::kF32, {6}},  {"w/beta1_pow_acc_0", DType::kF32, {1}},
          {"norm/moment1_0", DType::kI8, {6}},           {"norm/moment1_0@scales", DType::kF32, {}},
          {"norm/moment2_0", DType::kU8, {6}},           {"norm/moment2_0@min_scales", DType::kF32, {}},
          {"norm/moment2_0@max_scales", DType::kF32, {}}};
}

std::vector<Tensor> o2_tensors() {
  return {{"w/moment2_0", DType::kI8, {64, 6}},
          {"w/moment1_0@scales", DType::kF32, {2, 6}},
          {"w/moment2_0@min_scales", DType::kF32, {2, 6}},
          {"w/moment2_0@max_scales", DType::kF32, {2, 6}},
          {"w/beta1_pow_acc_0", DType::kF32, {1}},
          {"norm/moment1_0", DType::kF32, {6}},
          {"norm/moment2_0", DType::kF32, {6}}};
}

/// A directory with an index like Paddle's, which is made before the moments are quantised.
Directory directory_of(const std::vector<Tensor>& tensors, const std::string& stage) {
  TestDirectory d;
  d.file("model-00001-of-00001.safetensors", {{"w", DType::kBF16, {64, 6}}, {"norm", DType::kBF16, {6}}},
         {{"format", "np"}});
  d.file(kFile, tensors, {{"format", "np"}});
  std::map<std::string, std::string> weight_map;
  for (const char* name : {"w/moment1_0", "w/moment2_0", "w/beta1_pow_acc_0", "norm/moment1_0", "norm/moment2_0"}) {
    weight_map.emplace(name, kFile);
  }
  d.index("optimizer.safetensors.index.json", weight_map, 3124,
          R"(, "ckpt_quant_stage": ")" + stage + R"(", "quant_ckpt_resume_times": 0, "master_weights": false)");
  return d.directory;
}

Recognised described(const Directory& directory) { return recognise(directory); }

std::string refusal(const std::vector<Tensor>& tensors, const std::string& stage) {
  try {
    (void)described(directory_of(tensors, stage));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  ADD_FAILURE() << "the directory was accepted";
  return {};
}

std::vector<Tensor> without(std::vector<Tensor> tensors, const std::string& name) {
  EXPECT_EQ(std::erase_if(tensors, [&](const auto& tensor) { return tensor.name == name; }), 1u) << name;
  return tensors;
}

std::vector<Tensor> with(std::vector<Tensor> tensors, const Tensor& other) {
  tensors = without(std::move(tensors), other.name);
  tensors.push_back(other);
  return tensors;
}

TEST(PaddleQuantised, PartsOfO1) {
  const Recognised out = described(directory_of(o1_tensors(), "O1"));
  EXPECT_TRUE(out.warnings.empty()) << out.warnings.front();
  ASSERT_EQ(out.quantised.size(), 2u);
  const QuantisedMoments& norm = out.quantised[0];
  EXPECT_EQ(norm.codec, "paddle-o1");
  EXPECT_EQ(norm.first, "norm/moment1_0");
  EXPECT_EQ(norm.shape, Shape{6});
  const QuantisedMoments& w = out.quantised[1];
  EXPECT_EQ(w.section, "optimizer");
  EXPECT_EQ(w.second, "w/moment2_0");
  EXPECT_EQ(w.shape, (Shape{64, 6}));
  EXPECT_THAT(w.parts, testing::ElementsAre("w/moment1_0", "w/moment1_0@scales", "w/moment2_0",
                                            "w/moment2_0@min_scales", "w/moment2_0@max_scales"));
  for (const auto& part : w.parts) EXPECT_EQ(tensor_of(out, "optimizer", part).boxes.size(), 1u);
}

TEST(PaddleQuantised, PartsOfO2) {
  const Recognised out = described(directory_of(o2_tensors(), "O2"));
  EXPECT_TRUE(out.warnings.empty()) << out.warnings.front();
  ASSERT_EQ(out.quantised.size(), 1u);  // norm is F32
  EXPECT_EQ(out.quantised[0].codec, "paddle-o2");
  EXPECT_EQ(out.quantised[0].first, "w/moment1_0");
  EXPECT_THAT(out.quantised[0].parts, testing::ElementsAre("w/moment2_0", "w/moment1_0@scales",
                                                           "w/moment2_0@min_scales", "w/moment2_0@max_scales"));
}

TEST(PaddleQuantised, OthersHaveNoCodes) { EXPECT_TRUE(described(load_case("paddle-fused-tp2")).quantised.empty()); }

TEST(PaddleQuantised, EveryPartIsNeeded) {
  for (const auto& [tensors, stage] : {std::pair(o1_tensors(), "O1"), std::pair(o2_tensors(), "O2")}) {
    int parts = 0;
    for (const auto& tensor : tensors) {
      if (!tensor.name.starts_with("w/moment")) continue;
      EXPECT_THAT(refusal(without(tensors, tensor.name), stage), HasSubstr("'" + tensor.name.substr(0, 11)))
          << tensor.name;
      ++parts;
    }
    EXPECT_GE(parts, 4);
  }
  EXPECT_THAT(refusal(without(o1_tensors(), "w/moment2_0@max_scales"), "O1"),
              AllOf(HasSubstr(kFile), HasSubstr("'w/moment2_0@max_scales' is missing"), HasSubstr("paddle-o1")));
  EXPECT_THAT(refusal(without(o2_tensors(), "w/moment2_0@min_scales"), "O2"),
              HasSubstr("'w/moment2_0@min_scales' is missing"));
}

TEST(PaddleQuantised, PartsHaveTheCodecsForm) {
  EXPECT_THAT(refusal(with(o1_tensors(), {"w/moment1_0@scales", DType::kF32, {64}}), "O1"),
              AllOf(HasSubstr(kFile), HasSubstr("'w/moment1_0@scales' is F32 [64]"), HasSubstr("F32 [6]")));
  EXPECT_THAT(refusal(with(o1_tensors(), {"w/moment1_0", DType::kI8, {64, 5}}), "O1"), HasSubstr("I8 [64, 6]"));
  EXPECT_THAT(refusal(with(o1_tensors(), {"w/moment2_0", DType::kI8, {64, 6}}), "O1"), HasSubstr("U8 [64, 6]"));
  EXPECT_THAT(refusal(with(o1_tensors(), {"norm/moment1_0@scales", DType::kF32, {1}}), "O1"), HasSubstr("F32 []"));
  EXPECT_THAT(refusal(with(o2_tensors(), {"w/moment2_0@max_scales", DType::kF16, {2, 6}}), "O2"), HasSubstr("F16"));
  EXPECT_THAT(refusal(with(o2_tensors(), {"w/moment2_0", DType::kI8, {63, 6}}), "O2"),
              AllOf(HasSubstr("'w/moment2_0' cannot be codes of paddle-o2"), HasSubstr("63 rows")));
}

TEST(PaddleQuantised, AnotherStageDoesNotFit) {
  EXPECT_THAT(refusal(o1_tensors(), "O2"), AllOf(HasSubstr("paddle-o2"), HasSubstr("moment")));
  EXPECT_THAT(refusal(o2_tensors(), "O1"), AllOf(HasSubstr("w/moment"), HasSubstr("paddle-o1")));
  EXPECT_THAT(refusal(o1_tensors(), "O3"), AllOf(HasSubstr("index.json"), HasSubstr("unknown stage 'O3'")));
}

TEST(PaddleQuantised, NothingElseStandsBesideTheParts) {
  auto tensors = o2_tensors();
  tensors.push_back({"w/moment1_0", DType::kF32, {64, 6}});
  EXPECT_THAT(refusal(tensors, "O2"), AllOf(HasSubstr("'w/moment1_0' as well"), HasSubstr("paddle-o2")));
}

TEST(PaddleQuantised, MomentsThatWereKeptAreNotCoded) {
  // Cairn stores an O2 parameter in F32, without scales, if its rows cannot be grouped.
  auto tensors =
      without(without(without(o2_tensors(), "w/moment1_0@scales"), "w/moment2_0@min_scales"), "w/moment2_0@max_scales");
  tensors = with(tensors, {"w/moment2_0", DType::kF32, {63, 6}});
  tensors.push_back({"w/moment1_0", DType::kF32, {63, 6}});
  EXPECT_TRUE(described(directory_of(tensors, "O2")).quantised.empty());
}

TEST(PaddleQuantised, FirstMomentInAnotherFileThanTheIndexSays) {
  Directory directory = directory_of(o2_tensors(), "O2");
  TestDirectory other;
  other.file("optimizer-00002-of-00002.safetensors", {{"w/moment1_0", DType::kF32, {64, 6}}, {"x", DType::kF32, {1}}},
             {{"format", "np"}});
  directory.safetensors.merge(other.directory.safetensors);
  auto& index = directory.json["optimizer.safetensors.index.json"];
  index.replace(index.find("{\"norm/moment1_0\""), 1, R"({"x": "optimizer-00002-of-00002.safetensors", )");
  try {
    (void)described(directory);
    ADD_FAILURE() << "the directory was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'w/moment1_0' is not in this file"),
                                    HasSubstr("it is in optimizer-00002-of-00002.safetensors")));
  }
}

TEST(PaddleQuantised, RealDirectories) {
  for (const auto& [name, codec, count] :
       {std::tuple("paddle-O1", "paddle-o1", 12u), std::tuple("paddle-O2", "paddle-o2", 9u)}) {
    const Recognised out = described(load_case(name));
    EXPECT_EQ(out.quantised.size(), count) << name;
    for (const auto& moments : out.quantised) EXPECT_EQ(moments.codec, codec);
    // Warnings are about parts that these directories lack or carry, not about unlisted scales or total_size.
    EXPECT_FALSE(warns_of(out, {"total_size"})) << name;
    EXPECT_FALSE(warns_of(out, {"not listed"})) << name;
  }
}

}  // namespace
}  // namespace cairn::interop::test
