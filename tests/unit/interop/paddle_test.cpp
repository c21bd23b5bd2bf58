// PaddlePaddle's conventions: recognition of its files, transposed tensors, and refused tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "test_directory.hpp"

namespace cairn::interop::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::string kKeys = R"(, "quant_ckpt_resume_times": 0, "master_weights": true)";

/// A model, master weights, and an optimizer in two files, which has an index like Paddle's.
TestDirectory good(const std::string& keys = kKeys) {
  TestDirectory d;
  d.file("model-00001-of-00001.safetensors", {{"w", DType::kU16, {4, 6}}, {"norm", DType::kU16, {6}}}, kNumpy);
  d.file("master_weights-00001-of-00001.safetensors", {{"w", DType::kF32, {4, 6}}, {"norm", DType::kF32, {6}}}, kNumpy);
  d.file("optimizer-00001-of-00002.safetensors",
         {{"w/moment1_0", DType::kF32, {4, 6}}, {"w/beta1_pow_acc_0", DType::kF32, {1}}}, kNumpy);
  d.file("optimizer-00002-of-00002.safetensors",
         {{"norm/moment1_0", DType::kF32, {6}}, {"norm/beta1_pow_acc_0", DType::kF32, {1}}}, kNumpy);
  const std::string first = "optimizer-00001-of-00002.safetensors";
  const std::string second = "optimizer-00002-of-00002.safetensors";
  d.index("optimizer.safetensors.index.json",
          {{"w/moment1_0", first},
           {"w/beta1_pow_acc_0", first},
           {"norm/moment1_0", second},
           {"norm/beta1_pow_acc_0", second}},
          128, keys);
  return d;
}

TEST(Paddle, U16IsBF16) {
  const auto out = recognise(good().directory);
  EXPECT_EQ(out.about.dialect, "PaddlePaddle");
  EXPECT_EQ(tensor_of(out, "model", "w").dtype, DType::kBF16);
  EXPECT_EQ(tensor_of(out, "model", "norm").dtype, DType::kBF16);
  EXPECT_EQ(tensor_of(out, "master_weights", "w").dtype, DType::kF32);
  EXPECT_EQ(out.tensors.size(), 8u);
  EXPECT_TRUE(warns_of(out, {"2 tensors", "U16", "BF16"}));
}

TEST(Paddle, U16StaysU16ElsewhereInTheWorld) {
  const auto out = recognise(TestDirectory().file("model.safetensors", {{"w", DType::kU16, {2}}}).directory);
  EXPECT_EQ(out.about.dialect, "Hugging Face");
  EXPECT_EQ(tensor_of(out, "model", "w").dtype, DType::kU16);
}

TEST(Paddle, EachSignIsEnough) {
  const auto dialect = [](const TestDirectory& d) { return recognise(d.directory).about.dialect; };
  TestDirectory plain;
  plain.file_of("model.safetensors", {"w"}).file_of("optimizer.safetensors", {"w"});
  EXPECT_EQ(dialect(plain), "Hugging Face");
  for (const char* key : {R"(, "master_weights": false)", R"(, "quant_ckpt_resume_times": 1)",
                          R"(, "optim_shard_num": 1)", R"(, "ckpt_quant_stage": "O0")"}) {
    TestDirectory d = plain;
    d.index("optimizer.safetensors.index.json", {{"w", "optimizer.safetensors"}}, 24, key);
    EXPECT_EQ(dialect(d), "PaddlePaddle") << key;
  }
  EXPECT_EQ(dialect(TestDirectory().file_of("model.safetensors", {"w"}, kNumpy)), "PaddlePaddle");
  EXPECT_EQ(dialect(TestDirectory().file_of("peft_model.safetensors", {"w"}, {})), "PaddlePaddle");
}

TEST(Paddle, RepeatedScalarsAreTakenFromTheFileThatTheIndexNames) {
  TestDirectory d = good();
  d.file("optimizer-00002-of-00002.safetensors",
         {{"norm/moment1_0", DType::kF32, {6}},
          {"norm/beta1_pow_acc_0", DType::kF32, {1}},
          {"w/beta1_pow_acc_0", DType::kF32, {1}}},
         kNumpy);
  const auto out = recognise(d.directory);
  const auto& scalar = tensor_of(out, "optimizer", "w/beta1_pow_acc_0");
  ASSERT_EQ(scalar.boxes.size(), 1u);
  EXPECT_EQ(out.files.at(scalar.boxes[0].file).name, "optimizer-00001-of-00002.safetensors");
  EXPECT_TRUE(warns_of(out, {"1 scalars", "w/beta1_pow_acc_0", "optimizer-00002-of-00002.safetensors"}));
  EXPECT_FALSE(warns_of(out, {"total_size"}));
}

TEST(Paddle, OtherRepeatedTensorsAreErrors) {
  TestDirectory d = good();
  d.file("optimizer-00002-of-00002.safetensors",
         {{"norm/moment1_0", DType::kF32, {6}},
          {"norm/beta1_pow_acc_0", DType::kF32, {1}},
          {"w/moment1_0", DType::kF32, {4, 6}}},
         kNumpy);
  EXPECT_THAT(failure_of(d.directory),
              AllOf(HasSubstr("optimizer-00002-of-00002.safetensors: tensor 'w/moment1_0'"),
                    HasSubstr("optimizer-00001-of-00002.safetensors as well"), HasSubstr("split_param")));
}

TEST(Paddle, UnlistedOptimizerTensorsAreTakenUnlistedWeightsAreNot) {
  TestDirectory d = good();
  d.file(
      "optimizer-00002-of-00002.safetensors",
      {{"norm/moment1_0", DType::kF32, {6}}, {"norm/beta1_pow_acc_0", DType::kF32, {1}}, {"extra", DType::kF32, {1}}},
      kNumpy);
  const auto out = recognise(d.directory);
  EXPECT_EQ(tensor_of(out, "optimizer", "extra").boxes.size(), 1u);
  EXPECT_TRUE(warns_of(out, {"1 tensor of the files is not listed", "extra"}));
  d.index("model.safetensors.index.json", {{"w", "model-00001-of-00001.safetensors"}}, 60);
  EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr("'norm'"), HasSubstr("does not list")));
}

TEST(Paddle, UnlistedTensorInTwoFiles) {
  TestDirectory d = good();
  for (const std::string number : {"1", "2"}) {
    const std::string file = "optimizer-0000" + number + "-of-00002.safetensors";
    std::vector<Tensor> tensors = {{"extra", DType::kF32, {1}}};
    for (const auto& entry : d.directory.safetensors[file].tensors) {
      tensors.push_back({std::string(entry.name), entry.dtype, {entry.shape.begin(), entry.shape.end()}});
    }
    d.file(file, tensors, kNumpy);
  }
  EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr("'extra'"), HasSubstr("as well")));
}

TEST(Paddle, AbsentMasterWeightsAreAWarning) {
  TestDirectory d = good();
  d.directory.safetensors.erase("master_weights-00001-of-00001.safetensors");
  EXPECT_TRUE(warns_of(recognise(d.directory), {"optimizer.safetensors.index.json", "master weights"}));
  TestDirectory honest = good(R"(, "master_weights": false)");
  honest.directory.safetensors.erase("master_weights-00001-of-00001.safetensors");
  EXPECT_FALSE(warns_of(recognise(honest.directory), {"master weights"}));
}

// ---- refused

TEST(PaddleRefused, UnknownStages) {
  EXPECT_THAT(failure_of(good(R"(, "ckpt_quant_stage": 7)").directory),
              AllOf(HasSubstr("optimizer.safetensors.index.json"), HasSubstr("unknown stage '7'")));
  EXPECT_THAT(failure_of(good(R"(, "ckpt_quant_stage": "O3")").directory), HasSubstr("unknown stage 'O3'"));
  EXPECT_EQ(recognise(good(R"(, "ckpt_quant_stage": "O0")").directory).about.dialect, "PaddlePaddle");
}

TEST(PaddleRefused, ScalesWithoutACodec) {
  TestDirectory d = good();
  d.file("optimizer-00002-of-00002.safetensors",
         {{"norm/moment1_0", DType::kF32, {6}},
          {"norm/beta1_pow_acc_0", DType::kF32, {1}},
          {"norm/moment1_0@scales", DType::kF32, {}}},
         kNumpy);
  EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr("optimizer-00002-of-00002.safetensors"),
                                             HasSubstr("norm/moment1_0@scales"), HasSubstr("ckpt_quant_stage")));
}

TEST(PaddleRefused, FilesOfRanksBesideMergedOnes) {
  TestDirectory by_name = good();
  by_name.file_of("master_weights.tp00_pp01.safetensors", {"w"}, kNumpy);
  EXPECT_THAT(failure_of(by_name.directory),
              AllOf(HasSubstr("optimizer-00001-of-00002.safetensors"),
                    HasSubstr("another save than master_weights.tp00_pp01.safetensors")));
  TestDirectory by_index = good();
  by_index.json("optimizer.safetensors.index.json", R"({"quant_ckpt_resume_times": 0})");
  EXPECT_THAT(failure_of(by_index.directory, ErrorKind::kNotFound),
              AllOf(HasSubstr("optimizer.safetensors.index.json"), HasSubstr("ignore_merge_optimizer")));
}

TEST(PaddleRefused, FlatSlicesBesideWholeTensors) {
  const auto failure_with = [](const std::string& file, const std::vector<Tensor>& tensors) {
    return failure_of(good().file(file, tensors, kNumpy).directory);
  };
  EXPECT_THAT(failure_with("master_weights-00001-of-00001.safetensors",
                           {{"w", DType::kF32, {200}}, {"norm", DType::kF32, {6}}}),
              AllOf(HasSubstr("master_weights-00001-of-00001.safetensors: tensor"), HasSubstr("split_param")));
  EXPECT_THAT(failure_with("optimizer-00002-of-00002.safetensors",
                           {{"norm/moment1_0", DType::kF32, {256}}, {"norm/beta1_pow_acc_0", DType::kF32, {1}}}),
              AllOf(HasSubstr("'w/moment1_0'"), HasSubstr("[4, 6]"), HasSubstr("stands among slices")));
}

TEST(Paddle, TransposedModelWeightsAreNoFlatSlices) {
  TestDirectory d = good();
  d.file("model-00001-of-00001.safetensors", {{"w", DType::kBF16, {6, 4}}, {"norm", DType::kBF16, {6}}}, kTorch);
  EXPECT_EQ(tensor_of(recognise(d.directory), "model", "w").shape, (Shape{6, 4}));
}

}  // namespace
}  // namespace cairn::interop::test
