// Plain file sets: sections, agreement of index and files, carried files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/manifest.hpp"
#include "test_directory.hpp"

namespace cairn::interop::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Sections = std::map<std::string, std::size_t>;

constexpr std::uint64_t kTensorBytes = 24;  // each tensor of file_of(): F32 [2, 3]

/// Two numbered files with their index.
TestDirectory good() {
  TestDirectory d;
  d.file_of("model-00001-of-00002.safetensors", {"a", "b"}).file_of("model-00002-of-00002.safetensors", {"c"});
  d.index("model.safetensors.index.json",
          {{"a", "model-00001-of-00002.safetensors"},
           {"b", "model-00001-of-00002.safetensors"},
           {"c", "model-00002-of-00002.safetensors"}},
          3 * kTensorBytes);
  return d;
}

TEST(HuggingFace, OneFile) {
  const auto out = recognise(TestDirectory().file("model.safetensors", {{"w", DType::kBF16, {2, 5}}}).directory);
  EXPECT_EQ(out.about.dialect, "Hugging Face");
  ASSERT_EQ(out.files.size(), 1u);
  ASSERT_EQ(out.tensors.size(), 1u);
  const auto tensor = format::stored_tensor(out.tensors[0]);
  EXPECT_EQ(tensor.section, "model");
  EXPECT_EQ(tensor.dtype, DType::kBF16);
  EXPECT_EQ(tensor.shape, (Shape{2, 5}));
  ASSERT_EQ(tensor.boxes.size(), 1u);
  EXPECT_EQ(tensor.boxes[0].box, (Box{{0, 0}, {2, 5}}));
  EXPECT_EQ(tensor.boxes[0].offset_bytes + 20, out.files[0].size_bytes);
  EXPECT_THAT(out.warnings, IsEmpty());
}

TEST(HuggingFace, ScalarsAndEmptyTensorsHaveOneBox) {
  const auto out = recognise(
      TestDirectory().file("model.safetensors", {{"empty", DType::kF32, {0, 3}}, {"one", DType::kI64, {}}}).directory);
  EXPECT_EQ(tensor_of(out, "model", "empty").boxes.at(0).box, (Box{{0, 0}, {0, 3}}));
  EXPECT_EQ(tensor_of(out, "model", "one").boxes.at(0).box, (Box{{}, {}}));
}

TEST(HuggingFace, TellsOfQuantisedWeights) {
  TestDirectory d = good();
  d.directory.json["config.json"] = R"({"quantization_config": {"quant_method": "gptq", "bits": 4}})";
  const auto about = recognise(d.directory).about;
  EXPECT_EQ(about.quantisation, "gptq, 4 bits");
  ASSERT_EQ(about.left.size(), 1u);
  EXPECT_THAT(about.left.at(0), HasSubstr("gptq, 4 bits"));
  for (const char* config : {R"({"quantization_config": 3})", R"({"quantization_config": {"bits": 4}})", "{}"}) {
    d.directory.json["config.json"] = config;
    EXPECT_EQ(recognise(d.directory).about.quantisation, "") << config;
  }
}

TEST(HuggingFace, FilesBesideTheWeightsAreReadAsPythonReadsThem) {
  TestDirectory d = good();
  d.directory.json["config.json"] =
      R"({"time_step_limit": [0.0, Infinity], "transformers_version": "4.0", "x": "\ud800", "transformers_version": "4.57"})";
  d.directory.json["trainer_state.json"] =
      R"({"log_history": [{"loss": NaN}], "best_metric": -Infinity, "global_step": 3})";
  const auto about = recognise(d.directory).about;
  EXPECT_EQ(about.version, "transformers 4.57");
  EXPECT_EQ(about.step, 3U);
  EXPECT_THAT(about.left, IsEmpty());
  d.directory.json["trainer_state.json"] = "{\"global_step\": 3,}";
  EXPECT_THAT(recognise(d.directory).about.left, testing::ElementsAre(HasSubstr("trainer_state.json: not valid JSON")));
}

TEST(HuggingFace, IndexedFiles) {
  const auto out = recognise(good().directory);
  EXPECT_EQ(sections_of(out), (Sections{{"model", 3}}));
  EXPECT_EQ(out.files.at(tensor_of(out, "model", "c").boxes.at(0).file).name, "model-00002-of-00002.safetensors");
  EXPECT_THAT(out.warnings, IsEmpty());
  EXPECT_THAT(out.carried, IsEmpty());
}

TEST(HuggingFace, FilesOfAnyNameThatTheIndexLists) {
  TestDirectory d;
  d.file_of("part_one.safetensors", {"a"}).file_of("part_two.safetensors", {"b"});
  d.index("model.safetensors.index.json", {{"a", "part_one.safetensors"}, {"b", "part_two.safetensors"}}, 48);
  EXPECT_EQ(sections_of(recognise(d.directory)), (Sections{{"model", 2}}));
}

TEST(HuggingFace, StemsAreSections) {
  TestDirectory d = good();
  d.file_of("optimizer.safetensors", {"a", "b"}).file_of("master_weights.safetensors", {"a"});
  d.file_of("adapter_model.safetensors", {"lora"}).file_of("ema.safetensors", {"a"});
  d.file_of("model.fp16-00001-of-00001.safetensors", {"a"});
  EXPECT_EQ(
      sections_of(recognise(d.directory)),
      (Sections{{"adapter", 1}, {"ema", 1}, {"master_weights", 1}, {"model", 3}, {"model.fp16", 1}, {"optimizer", 2}}));
}

TEST(HuggingFace, TheOnlyStemIsTheModelUnlessItHasAMeaning) {
  const auto sections = [](const std::string& file) {
    return sections_of(recognise(TestDirectory().file_of(file, {"a"}).directory));
  };
  EXPECT_EQ(sections("consolidated.safetensors"), (Sections{{"model", 1}}));
  EXPECT_EQ(sections("diffusion_pytorch_model-00001-of-00001.safetensors"), (Sections{{"model", 1}}));
  EXPECT_EQ(sections("adapter_model.safetensors"), (Sections{{"adapter", 1}}));
  EXPECT_EQ(sections("optimizer.safetensors"), (Sections{{"optimizer", 1}}));
}

TEST(HuggingFace, TheOnlyVariantIsTheModel) {
  TestDirectory d;
  d.file_of("model.fp16-00001-of-00001.safetensors", {"a"}).file_of("optimizer.safetensors", {"a"});
  for (const char* index : {"model.safetensors.index.fp16.json", "model.fp16.safetensors.index.json"}) {
    TestDirectory indexed = d;
    indexed.index(index, {{"a", "model.fp16-00001-of-00001.safetensors"}}, kTensorBytes);
    EXPECT_EQ(sections_of(recognise(indexed.directory)), (Sections{{"model", 1}, {"optimizer", 1}})) << index;
  }
}

TEST(HuggingFace, CairnsManifestKnowsTheSections) {
  TestDirectory d;
  d.file_of("ema.safetensors", {"a"}).other("cairn.blocks").other("tokenizer.model");
  EXPECT_EQ(sections_of(recognise(d.directory)), (Sections{{"model", 1}}));
  const std::vector<format::ManifestFile> files = {{"ema.safetensors", "ema", 0, 0}};
  d.json("cairn.json", "{}").directory.manifest = files;
  const auto out = recognise(d.directory);
  EXPECT_EQ(sections_of(out), (Sections{{"ema", 1}}));
  EXPECT_THAT(out.carried, ElementsAre("tokenizer.model"));
}

TEST(HuggingFace, EverythingElseIsCarried) {
  TestDirectory d = good();
  d.json("config.json", "{}").json("pytorch_model.bin.index.json", "{}").json("broken.json", "{{{").other("vocab.txt");
  d.directory.folders = {"runs", "sharded"};
  const auto out = recognise(d.directory);
  EXPECT_THAT(out.carried, ElementsAre("broken.json", "config.json", "pytorch_model.bin.index.json", "vocab.txt"));
  EXPECT_TRUE(warns_of(out, {"sub-directories", "runs, sharded"}));
}

TEST(HuggingFace, NumberedFilesWithoutIndexAreTakenWhenComplete) {
  TestDirectory d = good();
  d.directory.json.clear();
  const auto out = recognise(d.directory);
  EXPECT_EQ(sections_of(out), (Sections{{"model", 3}}));
  EXPECT_TRUE(warns_of(out, {"2 files of 'model' have no index"}));
}

TEST(HuggingFace, OneFileAloneMissesNoOther) {
  TestDirectory d = good();
  d.directory.json.clear();
  d.directory.safetensors.erase("model-00001-of-00002.safetensors");
  EXPECT_THAT(failure_of(d.directory, ErrorKind::kNotFound),
              AllOf(HasSubstr("file 1 of 2"), HasSubstr("model-00001-of-00002.safetensors")));
  d.directory.alone = true;
  EXPECT_EQ(sections_of(recognise(d.directory)), (Sections{{"model", 1}}));
}

TEST(HuggingFace, TotalSizeIsOnlyAWarning) {
  TestDirectory d = good();
  const auto with_total = [&](const std::string& total) {
    auto text = good().directory.json["model.safetensors.index.json"];
    text.replace(text.find("72"), 2, total);
    return recognise(d.json("model.safetensors.index.json", text).directory);
  };
  EXPECT_THAT(with_total("72.0").warnings, IsEmpty());
  EXPECT_TRUE(warns_of(with_total("71"), {"model.safetensors.index.json", "total_size is 71", "72 bytes"}));
  EXPECT_TRUE(warns_of(with_total("\"72\""), {"total_size"}));
  EXPECT_TRUE(warns_of(with_total("-72"), {"total_size"}));
}

// ---- one broken input per rule

TEST(HuggingFaceBroken, MissingFile) {
  TestDirectory d = good();
  d.directory.safetensors.erase("model-00002-of-00002.safetensors");
  EXPECT_THAT(failure_of(d.directory, ErrorKind::kNotFound),
              AllOf(HasSubstr("model-00002-of-00002.safetensors"), HasSubstr("missing"), HasSubstr("'c'")));
}

TEST(HuggingFaceBroken, TensorNotInItsFile) {
  TestDirectory d = good();
  d.file_of("model-00002-of-00002.safetensors", {"other"});
  EXPECT_THAT(failure_of(d.directory),
              AllOf(HasSubstr("model-00002-of-00002.safetensors"), HasSubstr("'c'"), HasSubstr("no file of the set")));
}

TEST(HuggingFaceBroken, TensorInAnotherFileThanTheIndexSays) {
  TestDirectory d = good();
  d.file_of("model-00001-of-00002.safetensors", {"a"}).file_of("model-00002-of-00002.safetensors", {"b", "c"});
  EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr("model-00001-of-00002.safetensors: tensor 'b'"),
                                             HasSubstr("it is in model-00002-of-00002.safetensors")));
}

TEST(HuggingFaceBroken, TensorInTwoFiles) {
  TestDirectory d = good();
  d.file_of("model-00002-of-00002.safetensors", {"b", "c"});
  EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr("model-00002-of-00002.safetensors: tensor 'b'"),
                                             HasSubstr("in model-00001-of-00002.safetensors as well")));
  d.directory.json.clear();
  EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr("model-00002-of-00002.safetensors: tensor 'b'"),
                                             HasSubstr("in model-00001-of-00002.safetensors as well")));
}

TEST(HuggingFaceBroken, TensorThatTheIndexDoesNotList) {
  TestDirectory d = good();
  d.file_of("model-00002-of-00002.safetensors", {"c", "d"});
  EXPECT_THAT(failure_of(d.directory),
              AllOf(HasSubstr("model-00002-of-00002.safetensors"), HasSubstr("'d'"), HasSubstr("does not list")));
}

TEST(HuggingFaceBroken, ShardsOfAnOlderSave) {
  for (const char* stale : {"model-00003-of-00003.safetensors", "model.safetensors"}) {
    TestDirectory d = good();
    d.file_of(stale, {"a"});
    EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr(std::string("/") + stale + ":"), HasSubstr("leftover"),
                                               HasSubstr("model.safetensors.index.json does not list")));
    d.directory.json.clear();
    EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr(stale), HasSubstr("another save")));
  }
}

TEST(HuggingFaceBroken, NumbersOutOfRange) {
  EXPECT_THAT(failure_of(TestDirectory().file_of("model-00003-of-00002.safetensors", {"a"}).directory),
              AllOf(HasSubstr("model-00003-of-00002.safetensors"), HasSubstr("0 to 2")));
  TestDirectory d;
  d.file_of("model-00001-of-00002.safetensors", {"a"}).file_of("model-000001-of-000002.safetensors", {"b"});
  EXPECT_THAT(failure_of(d.directory), HasSubstr("same number"));
}

TEST(HuggingFaceBroken, Indexes) {
  EXPECT_THAT(failure_of(good().json("model.safetensors.index.json", "{").directory),
              HasSubstr("model.safetensors.index.json"));
  EXPECT_THAT(failure_of(good().json("model.safetensors.index.json", "{\"metadata\": {}}").directory),
              HasSubstr("weight_map"));
  EXPECT_THAT(failure_of(good().index("model.safetensors.index.json", {{"a", "../a.safetensors"}}, 1).directory),
              AllOf(HasSubstr("model.safetensors.index.json"), HasSubstr("../a.safetensors")));
  EXPECT_THAT(failure_of(good().index("model.safetensors.index.json", {{"a", "a.bin"}}, 1).directory),
              AllOf(HasSubstr("'a'"), HasSubstr("a.bin"), HasSubstr("not a .safetensors file")));
  TestDirectory two;
  two.file_of("model.fp16.safetensors", {"a"});
  two.index("model.safetensors.index.fp16.json", {{"a", "model.fp16.safetensors"}}, kTensorBytes);
  two.index("model.fp16.safetensors.index.json", {{"a", "model.fp16.safetensors"}}, kTensorBytes);
  EXPECT_THAT(failure_of(two.directory),
              AllOf(HasSubstr("model.safetensors.index.fp16.json"), HasSubstr("model.fp16.safetensors.index.json")));
  TestDirectory large = good();
  large.directory.json.clear();
  EXPECT_THAT(failure_of(large.other("model.safetensors.index.json").directory), HasSubstr("too large"));
}

TEST(HuggingFaceBroken, AnEmptyIndexKnowsNoFile) {
  EXPECT_THAT(failure_of(good().index("model.safetensors.index.json", {}, 0).directory), HasSubstr("leftover"));
}

TEST(HuggingFaceBroken, NamesAreEscaped) {
  TestDirectory d = good();
  d.file_of("model-00002-of-00002.safetensors", {"c", "line\nbreak"});
  EXPECT_THAT(failure_of(d.directory), HasSubstr("line\\x0abreak"));
  TestDirectory named = good();
  named.file_of("model-00003-of-00003\n.safetensors", {"a"});
  named.file_of("model-00003-of-00003\n-00002-of-00002.safetensors", {"a"});
  EXPECT_THAT(failure_of(named.directory), HasSubstr("\\x0a"));
}

TEST(HuggingFaceBroken, NoName) {
  EXPECT_THAT(failure_of(TestDirectory().file_of(".safetensors", {"a"}).directory), HasSubstr("no name"));
}

TEST(HuggingFaceBroken, NothingThere) {
  const auto hint = [](const std::string& file) {
    return failure_of(TestDirectory().other(file).directory, ErrorKind::kNotFound);
  };
  EXPECT_THAT(failure_of(TestDirectory().json("config.json", "{}").directory, ErrorKind::kNotFound),
              HasSubstr("no .safetensors file"));
  EXPECT_THAT(hint("__0_0.distcp"), HasSubstr("torch DCP"));
  EXPECT_THAT(hint("unet.pdparams"), HasSubstr("model_state.pdparams"));
  EXPECT_THAT(hint("pytorch_model.bin"), HasSubstr("pickled"));
  TestDirectory d;
  d.other("README.md").directory.folders = {"sharded"};
  EXPECT_THAT(failure_of(d.directory, ErrorKind::kNotFound), HasSubstr("folder sharded"));
}

TEST(HuggingFaceBroken, MindSporePartsAreNamed) {
  for (const char* file : {"model-0000000-0000002.safetensors", "model-0000000-0000001.safetensors"}) {
    EXPECT_THAT(failure_of(TestDirectory().file_of(file, {"a"}).directory), HasSubstr("MindSpore"));
  }
}

}  // namespace
}  // namespace cairn::interop::test
