// Paddle optimizers whose files hold the state of single ranks: the places of the slices, and every mismatch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "interop/paddle/rank_files.hpp"
#include "interop/paddle/slices.hpp"
#include "test_directory.hpp"

namespace cairn::interop::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Tensors = std::vector<Tensor>;

/// A model of four weights: "a.q_proj.weight" [8, 6] is cut by columns, "a.o_proj.weight" [6, 8] by rows.
TestDirectory model_of(const std::string& stage = "") {
  TestDirectory d;
  d.file("model-00001-of-00001.safetensors",
         {{"a.q_proj.weight", DType::kU16, {8, 6}},
          {"a.o_proj.weight", DType::kU16, {6, 8}},
          {"a.gate_up_fused_proj.weight", DType::kU16, {4, 12}},
          {"a.norm.weight", DType::kU16, {6}}},
         kNumpy);
  const std::string quant = stage.empty() ? "" : R"("ckpt_quant_stage": ")" + stage + "\", ";
  d.json("optimizer.safetensors.index.json", "{" + quant + R"("quant_ckpt_resume_times": 0})");
  return d;
}

/// F32 moments of a parameter, and its accumulator.
Tensors moments(const std::string& parameter, const Shape& shape) {
  return {{parameter + "/moment1_0", DType::kF32, shape},
          {parameter + "/moment2_0", DType::kF32, shape},
          {parameter + "/beta1_pow_acc_0", DType::kF32, {1}}};
}

/// The tensors that O1 stores for a parameter.
Tensors codes(const std::string& parameter, const Shape& shape) {
  const Shape scales = shape.size() == 2 ? Shape{shape[1]} : Shape{};
  return {{parameter + "/moment1_0", DType::kI8, shape},
          {parameter + "/moment1_0@scales", DType::kF32, scales},
          {parameter + "/moment2_0", DType::kU8, shape},
          {parameter + "/moment2_0@min_scales", DType::kF32, scales},
          {parameter + "/moment2_0@max_scales", DType::kF32, scales},
          {parameter + "/beta1_pow_acc_0", DType::kF32, {1}}};
}

Tensors joined(std::initializer_list<Tensors> lists) {
  Tensors out;
  for (const Tensors& list : lists) out.insert(out.end(), list.begin(), list.end());
  return out;
}

std::string file_of_tp(int rank) { return "optimizer.tp0" + std::to_string(rank) + ".safetensors"; }

/// Both tensor-parallel ranks have slices of the moments of every matrix, and copies of all other state.
TestDirectory tensor_parallel(const std::string& stage = "") {
  const auto state = stage.empty() ? moments : codes;
  TestDirectory d = model_of(stage);
  for (const int rank : {0, 1}) {
    d.file(file_of_tp(rank),
           joined({state("a.q_proj.weight", {8, 3}), state("a.o_proj.weight", {3, 8}),
                   state("a.gate_up_fused_proj.weight", {4, 6}), state("a.norm.weight", {6})}),
           kNumpy);
  }
  return d;
}

Tensors without(Tensors tensors, const std::string& name) {
  EXPECT_EQ(std::erase_if(tensors, [&](const Tensor& tensor) { return tensor.name == name; }), 1u) << name;
  return tensors;
}

/// The error for tensor_parallel() with different tensors in the second rank's file.
std::string failure_with(const Tensors& second, ErrorKind kind = ErrorKind::kFormat) {
  TestDirectory d = tensor_parallel();
  d.file(file_of_tp(1), second, kNumpy);
  return failure_of(d.directory, kind);
}

TEST(PaddleByRank, NamesSayWhichRank) {
  const auto name = parse_rank_name("master_weights.tp01_pp10_shard123.safetensors");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->set, "master_weights");
  EXPECT_THAT(name->ranks, ElementsAre(1u, 10u, 123u, std::nullopt));
  EXPECT_FALSE(parse_rank_name("optimizer.tp00_tp01.safetensors"));
  EXPECT_FALSE(parse_rank_name("optimizer.tp99999999999.safetensors"));
}

TEST(PaddleByRank, SlicesLieWhereTheyDifferFromTheWeight) {
  const Recognised out = recognise(tensor_parallel().directory);
  const auto columns = tensor_of(out, "optimizer", "a.q_proj.weight/moment1_0");
  EXPECT_EQ(columns.shape, (Shape{8, 6}));
  ASSERT_EQ(columns.boxes.size(), 2u);
  EXPECT_EQ(columns.boxes[1].box, (Box{{0, 3}, {8, 3}}));
  EXPECT_EQ(columns.boxes[1].row_elems, 0u);
  const auto rows = tensor_of(out, "optimizer", "a.o_proj.weight/moment2_0");
  EXPECT_EQ(rows.boxes.at(1).box, (Box{{3, 0}, {3, 8}}));
  EXPECT_EQ(tensor_of(out, "optimizer", "a.norm.weight/moment1_0").boxes.size(), 1u);
  EXPECT_EQ(tensor_of(out, "optimizer", "a.q_proj.weight/beta1_pow_acc_0").boxes.size(), 1u);
  EXPECT_TRUE(warns_of(out, {"2 tensors are in files of several ranks", "first rank"}));
}

TEST(PaddleByRank, FusedWeightsAreCutEachForItself) {
  const auto fused_weights = [](const std::string& name) {
    return fused_of(facts_of(base::Json::object(), name), name).widths.size();
  };
  EXPECT_EQ(fused_weights("llama.layers.0.mlp.gate_up_fused_proj.weight"), 2u);
  EXPECT_EQ(fused_weights("qwen.h.0.attn.c_attn.bias"), 3u);
  EXPECT_EQ(fused_weights("gpt.h.0.attn.c_attn.bias"), 1u);
  EXPECT_EQ(fused_weights("llama.layers.0.self_attn.qkv_proj.weight"), 1u);
  const Recognised out = recognise(tensor_parallel().directory);
  const auto fused = tensor_of(out, "optimizer", "a.gate_up_fused_proj.weight/moment1_0");
  ASSERT_EQ(fused.boxes.size(), 4u);  // gate, up of rank 0; gate, up of rank 1
  EXPECT_EQ(fused.boxes[0].box, (Box{{0, 0}, {4, 3}}));
  EXPECT_EQ(fused.boxes[1].box, (Box{{0, 6}, {4, 3}}));
  EXPECT_EQ(fused.boxes[2].box, (Box{{0, 3}, {4, 3}}));
  EXPECT_EQ(fused.boxes[3].box, (Box{{0, 9}, {4, 3}}));
  for (const auto& stored : fused.boxes) EXPECT_EQ(stored.row_elems, 6u);
  EXPECT_EQ(fused.boxes[1].offset_bytes - fused.boxes[0].offset_bytes, 3 * sizeof(float));
}

TEST(PaddleByRank, ScalesOfColumnsAreThoseOfTheWhole) {
  const Recognised out = recognise(tensor_parallel("O1").directory);
  ASSERT_EQ(out.quantised.size(), 4u);
  const auto find = [&](const std::string& first) {
    return *std::ranges::find(out.quantised, first, &QuantisedMoments::first);
  };
  EXPECT_TRUE(find("a.q_proj.weight/moment1_0").boxes.empty());
  EXPECT_EQ(tensor_of(out, "optimizer", "a.q_proj.weight/moment1_0@scales").shape, Shape{6});
  EXPECT_TRUE(find("a.norm.weight/moment1_0").boxes.empty());
  const QuantisedMoments rows = find("a.o_proj.weight/moment1_0");
  EXPECT_THAT(rows.boxes, ElementsAre(ScaledBox{{{0, 0}, {3, 8}}, 0}, ScaledBox{{{3, 0}, {3, 8}}, 1}));
  EXPECT_FALSE(rows.one_scale_a_box);
  EXPECT_EQ(tensor_of(out, "optimizer", "a.o_proj.weight/moment2_0@max_scales").shape, (Shape{2, 8}));
}

TEST(PaddleByRank, RangesOfFlattenedParametersHavePadding) {
  TestDirectory d = model_of("O1");
  for (const int rank : {0, 1}) {
    d.file("optimizer.shard0" + std::to_string(rank) + ".safetensors",
           joined({codes("a.o_proj.weight", {rank == 0 ? 20U : 236U}),
                   rank == 0 ? codes("a.q_proj.weight", {256}) : codes("a.norm.weight", {256})}),
           kNumpy);
  }
  const Recognised out = recognise(d.directory);
  const auto rows = tensor_of(out, "optimizer", "a.o_proj.weight/moment2_0");
  EXPECT_EQ(rows.shape, (Shape{6, 8}));
  std::vector<Box> boxes;
  for (const auto& stored : rows.boxes) boxes.push_back(stored.box);
  EXPECT_THAT(boxes, ElementsAre(Box{{0, 0}, {2, 8}}, Box{{2, 0}, {1, 4}}, Box{{2, 4}, {1, 4}}, Box{{3, 0}, {3, 8}}));
  const QuantisedMoments& coded = out.quantised.at(1);  // after the norm
  EXPECT_EQ(coded.first, "a.o_proj.weight/moment1_0");
  EXPECT_TRUE(coded.one_scale_a_box);
  EXPECT_EQ(coded.boxes.size(), 4u);
  EXPECT_EQ(coded.boxes[3].scales, 1u);
  EXPECT_EQ(tensor_of(out, "optimizer", "a.o_proj.weight/moment2_0@min_scales").shape, Shape{2});
  EXPECT_TRUE(warns_of(out, {"1 tensor of the model has no optimizer state", "gate_up_fused_proj"}));
}

TEST(PaddleByRankRefused, FilesOfRanksThatAreMissing) {
  TestDirectory d = tensor_parallel();
  d.directory.safetensors.erase(file_of_tp(1));
  EXPECT_THAT(failure_of(d.directory, ErrorKind::kNotFound),
              AllOf(HasSubstr("optimizer.tp01.safetensors: the file is missing"), HasSubstr("optimizer.tp00")));
  TestDirectory masters = tensor_parallel();
  masters.file("master_weights.tp02.safetensors", {{"a.norm.weight", DType::kF32, {6}}}, kNumpy);
  EXPECT_THAT(failure_of(masters.directory, ErrorKind::kNotFound), HasSubstr("master_weights.tp00.safetensors"));
  EXPECT_THAT(failure_of(model_of().directory, ErrorKind::kNotFound),
              AllOf(HasSubstr("optimizer.safetensors: the file is missing"), HasSubstr("ignore_merge_optimizer")));
}

TEST(PaddleByRankRefused, FilesOfTwoSaves) {
  TestDirectory axes = tensor_parallel();
  axes.file("optimizer.tp00_pp00.safetensors", moments("a.norm.weight", {6}), kNumpy);
  EXPECT_THAT(failure_of(axes.directory), HasSubstr("belongs to another save than"));
  TestDirectory merged = tensor_parallel();
  merged.file("master_weights-00001-of-00001.safetensors", {{"a.norm.weight", DType::kF32, {6}}}, kNumpy);
  EXPECT_THAT(failure_of(merged.directory), AllOf(HasSubstr("master_weights-00001-of-00001.safetensors"),
                                                  HasSubstr("another save than optimizer.tp00")));
  TestDirectory index = tensor_parallel();
  index.index("optimizer.safetensors.index.json", {{"a.norm.weight/moment1_0", file_of_tp(0)}}, 24,
              R"(, "master_weights": false)");
  EXPECT_THAT(failure_of(index.directory),
              AllOf(HasSubstr("optimizer.safetensors.index.json"), HasSubstr("another save")));
}

TEST(PaddleByRankRefused, SlicesThatDoNotMakeTheParameter) {
  const auto rest = joined({moments("a.o_proj.weight", {3, 8}), moments("a.gate_up_fused_proj.weight", {4, 6}),
                            moments("a.norm.weight", {6})});
  EXPECT_THAT(failure_with(joined({rest, moments("a.q_proj.weight", {8, 2})})),
              AllOf(HasSubstr("'a.q_proj.weight/moment1_0'"), HasSubstr("do not make parameter"), HasSubstr("[8, 6]")));
  EXPECT_THAT(failure_with(joined({rest, moments("a.q_proj.weight", {4, 3})})), HasSubstr("do not make parameter"));
  EXPECT_THAT(failure_with(rest),
              AllOf(HasSubstr("'a.q_proj.weight/moment1_0'"), HasSubstr("optimizer.tp01.safetensors"),
                    HasSubstr("does not have the one of rank 1")));
  auto other = moments("a.q_proj.weight", {8, 3});
  other[0].dtype = DType::kBF16;
  EXPECT_THAT(failure_with(joined({rest, other})), AllOf(HasSubstr("BF16"), HasSubstr("F32 in optimizer.tp00")));
  auto accumulator = moments("a.q_proj.weight", {8, 3});
  accumulator[2].shape = {2};
  EXPECT_THAT(failure_with(joined({rest, accumulator})), AllOf(HasSubstr("beta1_pow_acc_0"), HasSubstr("F32 [2]")));
}

/// Each half of the fused weight has 3 columns on a rank: the second half begins 12 bits into the slice.
TEST(PaddleByRankRefused, SlicesThatBeginWithinAByte) {
  TestDirectory d = model_of();
  for (const int rank : {0, 1}) {
    Tensors tensors = moments("a.gate_up_fused_proj.weight", {4, 6});
    tensors[0].dtype = DType::kF4;
    d.file(file_of_tp(rank), tensors, kNumpy);
  }
  EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr("'a.gate_up_fused_proj.weight/moment1_0'"),
                                             HasSubstr("slices that begin within a byte")));
}

TEST(PaddleByRankRefused, ParametersThatNothingPlaces) {
  TestDirectory unknown = tensor_parallel();
  for (const int rank : {0, 1}) unknown.file(file_of_tp(rank), moments("b.weight", {3}), kNumpy);
  EXPECT_THAT(failure_of(unknown.directory),
              AllOf(HasSubstr("'b.weight/moment1_0'"), HasSubstr("no weight of the model")));
  TestDirectory heads = tensor_parallel();
  heads.file("model-00001-of-00001.safetensors", {{"a.query_key_value.weight", DType::kU16, {8, 6}}}, kNumpy);
  for (const int rank : {0, 1}) heads.file(file_of_tp(rank), moments("a.query_key_value.weight", {8, 3}), kNumpy);
  EXPECT_THAT(failure_of(heads.directory), HasSubstr("head by head"));
  TestDirectory flat = model_of();
  for (const std::string rank : {"tp00_shard00", "tp00_shard01", "tp01_shard00", "tp01_shard01"}) {
    flat.file("optimizer." + rank + ".safetensors", moments("a.o_proj.weight", {128}), kNumpy);
  }
  EXPECT_THAT(failure_of(flat.directory), AllOf(HasSubstr("tp01_shard01"), HasSubstr("split_param")));
  TestDirectory turned = model_of();
  turned.file("model-00001-of-00001.safetensors", {{"a.unknown.weight", DType::kBF16, {8, 6}}}, kTorch);
  for (const std::string rank : {"0", "1"}) {
    turned.file("optimizer.shard0" + rank + ".safetensors", moments("a.unknown.weight", {128}), kNumpy);
  }
  EXPECT_THAT(failure_of(turned.directory), AllOf(HasSubstr("'a.unknown.weight/moment1_0'"), HasSubstr("save_to_hf")));
}

TEST(PaddleByRankRefused, RangesThatAreTooShort) {
  TestDirectory d = model_of();
  d.file("optimizer.shard00.safetensors", moments("a.o_proj.weight", {128}), kNumpy);
  d.file("optimizer.shard01.safetensors", moments("a.q_proj.weight", {256}), kNumpy);
  EXPECT_THAT(failure_of(d.directory),
              AllOf(HasSubstr("optimizer.shard00.safetensors"), HasSubstr("'a.o_proj.weight/moment1_0'"),
                    HasSubstr("one is missing or of another size")));
  TestDirectory twice = model_of();
  for (const std::string rank : {"0", "1"}) {
    twice.file("optimizer.shard0" + rank + ".safetensors", moments("a.norm.weight", {6}), kNumpy);
  }
  EXPECT_THAT(failure_of(twice.directory),
              AllOf(HasSubstr("'a.norm.weight/moment1_0'"), HasSubstr("is in optimizer.shard00")));
}

TEST(PaddleByRankRefused, ParametersWithoutAllOfTheirState) {
  TestDirectory d = tensor_parallel();
  for (const int rank : {0, 1}) {
    d.file(file_of_tp(rank),
           joined({moments("a.q_proj.weight", {8, 3}),
                   without(moments("a.o_proj.weight", {3, 8}), "a.o_proj.weight/beta1_pow_acc_0")}),
           kNumpy);
  }
  EXPECT_THAT(failure_of(d.directory),
              AllOf(HasSubstr("'a.o_proj.weight/beta1_pow_acc_0' is missing"), HasSubstr("'a.q_proj.weight' has one")));
  TestDirectory masters = tensor_parallel();
  for (const std::string rank : {"0", "1"}) {
    masters.file("master_weights.tp0" + rank + ".safetensors", {{"a.norm.weight", DType::kF32, {6}}}, kNumpy);
  }
  EXPECT_THAT(failure_of(masters.directory), HasSubstr("no file has a master weight of that parameter"));
}

TEST(PaddleByRankRefused, CodesThatAreNotTheCodecs) {
  const auto failure = [](const Tensors& of_o_proj) {
    TestDirectory d = tensor_parallel("O1");
    d.file(file_of_tp(1),
           joined({codes("a.q_proj.weight", {8, 3}), of_o_proj, codes("a.gate_up_fused_proj.weight", {4, 6}),
                   codes("a.norm.weight", {6})}),
           kNumpy);
    return failure_of(d.directory);
  };
  const Tensors good = codes("a.o_proj.weight", {3, 8});
  EXPECT_THAT(
      failure(without(good, "a.o_proj.weight/moment2_0@max_scales")),
      AllOf(HasSubstr("optimizer.tp01.safetensors"), HasSubstr("'a.o_proj.weight/moment2_0@max_scales' is missing")));
  Tensors scales = good;
  scales[1].shape = {4};
  EXPECT_THAT(failure(scales), AllOf(HasSubstr("'a.o_proj.weight/moment1_0@scales' is F32 [4]"), HasSubstr("F32 [8]")));
  TestDirectory unknown = tensor_parallel("O3");
  EXPECT_THAT(failure_of(unknown.directory), HasSubstr("unknown stage 'O3'"));
  TestDirectory none = tensor_parallel("O1");
  none.json("optimizer.safetensors.index.json", R"({"quant_ckpt_resume_times": 0})");
  EXPECT_THAT(failure_of(none.directory), HasSubstr("no index names their codec"));
}

TEST(PaddleByRankRefused, NumberedFilesWithFlatSlices) {
  const auto merged = [](const std::vector<std::string>& numbers, std::uint64_t length,
                         const std::string& padding = "0000", const std::string& count = "00003") {
    TestDirectory d = model_of();
    std::map<std::string, std::string> map;
    for (const std::string& number : numbers) {
      const std::string file = "optimizer-" + padding + number + "-of-" + count + ".safetensors";
      d.file(file, moments("a.o_proj.weight", {length}), kNumpy);
      map["a.o_proj.weight/moment1_0"] = file;
    }
    d.index("optimizer.safetensors.index.json", map, 1, R"(, "master_weights": false)");
    return d;
  };
  EXPECT_EQ(
      tensor_of(recognise(merged({"1", "2", "3"}, 128).directory), "optimizer", "a.o_proj.weight/moment2_0").shape,
      (Shape{6, 8}));
  EXPECT_THAT(failure_of(merged({"1", "3"}, 128).directory, ErrorKind::kNotFound),
              HasSubstr("optimizer-00002-of-00003.safetensors: the file is missing"));
  EXPECT_THAT(failure_of(merged({"1", "2"}, 128).directory, ErrorKind::kNotFound),
              HasSubstr("optimizer-00003-of-00003.safetensors: the file is missing"));
  const std::vector<std::string> without_3 = {"1", "10", "2", "4", "5", "6", "7", "8", "9"};
  EXPECT_THAT(failure_of(merged(without_3, 128, "", "10").directory, ErrorKind::kNotFound),
              HasSubstr("optimizer-3-of-10.safetensors: the file is missing"));
  TestDirectory index = merged({"1", "2", "3"}, 128);
  index.index("optimizer.safetensors.index.json", {{"b/moment1_0", "optimizer-00001-of-00003.safetensors"}}, 1);
  EXPECT_THAT(failure_of(index.directory), AllOf(HasSubstr("'b/moment1_0' is not in this file")));
}

// ---- other files in directories of merged files

TEST(PaddleByRank, ARanksStateMayBeInSeveralFiles) {
  const auto pieces = [](int count) {
    TestDirectory d = model_of();
    d.json("optimizer.safetensors.index.json", R"({"quant_ckpt_resume_times": 0, "optim_shard_num": 2})");
    for (const std::string rank : {"0", "1"}) {
      const std::string file = "optimizer.tp0" + rank + ".safetensors_shard_000";
      const Tensors all = moments("a.q_proj.weight", {8, 3});
      d.file(file + "1", {all[0], all[2]}, kNumpy);
      if (count == 2 || rank == "0") d.file(file + "2", {all[1]}, kNumpy);
    }
    return d;
  };
  const Recognised out = recognise(pieces(2).directory);
  EXPECT_EQ(sections_of(out).at("optimizer"), 3u);
  EXPECT_EQ(tensor_of(out, "optimizer", "a.q_proj.weight/moment2_0").boxes.size(), 2u);
  EXPECT_EQ(out.about.parallel, "tp=2");
  EXPECT_THAT(failure_of(pieces(1).directory, ErrorKind::kNotFound),
              HasSubstr("optimizer.tp01.safetensors_shard_0002: the file is missing"));
}

TEST(PaddleTies, StateIsHadUnderBothNames) {
  const auto tied = [](const std::string& config) {
    TestDirectory d;
    d.file("model-00001-of-00001.safetensors",
           {{"lm_head.weight", DType::kU16, {8, 6}}, {"m.embed_tokens.weight", DType::kU16, {8, 6}}}, kNumpy);
    d.json("optimizer.safetensors.index.json", R"({"ckpt_quant_stage": "O1", "quant_ckpt_resume_times": 0})");
    d.file("optimizer.safetensors", codes("lm_head.weight", {8, 6}), kNumpy);
    d.json("config.json", config);
    return recognise(d.directory);
  };
  const Recognised out = tied(R"({"tie_word_embeddings": true})");
  const auto name = [](const std::string& parameter) { return parameter + "/moment2_0@max_scales"; };
  EXPECT_EQ(tensor_of(out, "optimizer", name("m.embed_tokens.weight")).boxes[0].offset_bytes,
            tensor_of(out, "optimizer", name("lm_head.weight")).boxes[0].offset_bytes);
  ASSERT_EQ(out.quantised.size(), 2u);
  EXPECT_EQ(out.quantised[1].first, "m.embed_tokens.weight/moment1_0");
  EXPECT_EQ(out.quantised[1].parts.at(1), "m.embed_tokens.weight/moment1_0@scales");
  EXPECT_TRUE(warns_of(out, {"'lm_head.weight'", "as 'm.embed_tokens.weight' as well"}));
  EXPECT_EQ(tied(R"({"tie_word_embeddings": false})").quantised.size(), 1u);
}

TEST(PaddleSignals, ASaveThatHasNotEndedIsRefused) {
  const auto with = [](const std::vector<std::string>& signals) {
    TestDirectory d = tensor_parallel();
    for (const std::string& signal : signals) d.other(signal);
    return d;
  };
  const std::vector<std::string> all = {".model_weight.done.0", ".model_weight.done.1", ".optimizer_weight.done.0",
                                        ".optimizer_weight.done.1"};
  const Recognised out = recognise(with(all).directory);
  EXPECT_THAT(out.about.left, testing::Contains(HasSubstr("4 signal files of an asynchronous save")));
  EXPECT_THAT(out.carried,
              testing::Not(testing::Contains(HasSubstr("done"))));  // signals are about the files of that save only
  for (const std::string& missing : all) {
    auto rest = all;
    std::erase(rest, missing);
    EXPECT_THAT(failure_of(with(rest).directory),
                AllOf(HasSubstr(missing + ": the file is missing"), HasSubstr("2 ranks")));
  }
  EXPECT_THAT(failure_of(with({all[0], all[1]}).directory), HasSubstr(".optimizer_weight.done.0"));
}

TEST(PaddleByRankRefused, AModelThatIsFlattened) {
  TestDirectory d;
  d.file("model-00001-of-00001.safetensors",
         {{"a.q_proj.weight", DType::kF32, {256}}, {"a.norm.weight", DType::kF32, {256}}}, kNumpy);
  d.index("optimizer.safetensors.index.json", {{"a.q_proj.weight/moment1_0", "optimizer-00001-of-00001.safetensors"}},
          1);
  d.file("optimizer-00001-of-00001.safetensors", {{"a.q_proj.weight/moment1_0", DType::kF32, {256}}}, kNumpy);
  EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr("'a.q_proj.weight'"), HasSubstr("skip_save_model_weight")));
}

}  // namespace
}  // namespace cairn::interop::test
