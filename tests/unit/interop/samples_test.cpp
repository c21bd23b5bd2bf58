// Directories written by torch, transformers and PaddlePaddle, compared with their expected.json.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "environment.hpp"
#include "nlohmann/json.hpp"
#include "test_directory.hpp"
#include "test_name.hpp"

namespace cairn::interop::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

/// A tensor in the form of expected.json, with its boxes sorted by file.
json as_json(const format::StoredTensor& tensor, const Recognised& recognised) {
  std::vector<json> boxes;
  for (const auto& box : tensor.boxes) {
    boxes.push_back({recognised.files.at(box.file).name, box.offset_bytes, box.box.offset, box.box.shape});
  }
  std::sort(boxes.begin(), boxes.end());
  return {std::string(name_of(tensor.dtype)), tensor.shape, boxes};
}

class Sample : public testing::TestWithParam<const char*> {};

TEST_P(Sample, IsWhatItsTruthSays) {
  const Directory directory = load_case(GetParam());
  const Recognised recognised = recognise(directory);
  const auto path = cairn::test::test_data(std::string("dialects/") + GetParam() + "/expected.json");
  const json expected = json::parse(cairn::test::read_file(path));

  EXPECT_EQ(recognised.about.dialect, expected.at("dialect").get<std::string>());
  ASSERT_EQ(recognised.files.size(), directory.safetensors.size());
  for (const auto& file : recognised.files) {
    EXPECT_EQ(file.size_bytes, directory.safetensors.at(file.name).file_bytes);
  }
  const json& tensors = expected.at("tensors");
  ASSERT_GT(tensors.size(), 20u);
  // Paddle in a single process stores the master weight and states of tied embeddings under one name only; they are
  // read under the other name, too.
  const std::size_t tied = GetParam() == std::string("paddle-one-process") ? 5 : 0;
  ASSERT_EQ(recognised.tensors.size(), tensors.size() + tied);
  for (const auto& placed : recognised.tensors) {
    const format::StoredTensor tensor = format::stored_tensor(placed);
    std::string key = tensor.section + ":" + tensor.name;
    const std::string name = "llama.embed_tokens.weight";
    if (const auto at = key.find(name); tied != 0 && !tensors.contains(key) && at != std::string::npos) {
      key.replace(at, name.size(), "lm_head.weight");
    }
    ASSERT_TRUE(tensors.contains(key)) << key;
    EXPECT_EQ(as_json(tensor, recognised), tensors.at(key)) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Sample,
                         testing::Values("dcp-1d", "dcp-2d", "dcp-consolidated", "hf-tied", "paddle-fused-tp2",
                                         "paddle-lora", "paddle-one-process", "paddle-save-to-hf", "paddle-skip-model",
                                         "paddle-split-param"),
                         cairn::test::kNamedByParameter);

TEST(Samples, SectionsFollowTheFiles) {
  using Sections = std::map<std::string, std::size_t>;
  EXPECT_EQ(sections_of(recognise(load_case("paddle-lora"))),
            (Sections{{"adapter", 12}, {"master_weights", 12}, {"optimizer", 48}}));
  EXPECT_EQ(sections_of(recognise(load_case("paddle-one-process"))),
            (Sections{{"master_weights", 12}, {"model", 12}, {"optimizer", 48}}));
  EXPECT_EQ(sections_of(recognise(load_case("paddle-skip-model"))), (Sections{{"model", 12}, {"optimizer", 48}}));
  EXPECT_EQ(sections_of(recognise(load_case("dcp-2d"))), (Sections{{"model", 60}}));
}

TEST(Samples, OtherFilesAreCarried) {
  EXPECT_THAT(recognise(load_case("paddle-lora")).carried,
              testing::ElementsAre("config.json", "generation_config.json", "lora_config.json", "scheduler.pdparams",
                                   "trainer_state.json"));
  EXPECT_THAT(recognise(load_case("hf-tied")).carried, testing::ElementsAre("config.json", "generation_config.json"));
}

TEST(Samples, WarningsSayWhatWasAssumed) {
  const Recognised fused = recognise(load_case("paddle-fused-tp2"));
  EXPECT_TRUE(warns_of(fused, {"9 tensors", "U16", "BF16"}));
  EXPECT_EQ(fused.warnings.size(), 1u);
  EXPECT_TRUE(recognise(load_case("hf-tied")).warnings.empty());
  const Recognised turned = recognise(load_case("paddle-save-to-hf"));
  EXPECT_TRUE(warns_of(turned, {"the other way round", "save_to_hf", "_proj.weight"}));
  EXPECT_EQ(turned.warnings.size(), 1u);  // true BF16, no assumption
  EXPECT_TRUE(warns_of(recognise(load_case("paddle-split-param")),
                       {"optimizer.safetensors.index.json", "2 scalars", "beta1_pow_acc_0"}));
  EXPECT_TRUE(warns_of(recognise(load_case("paddle-skip-model")), {"master weights", "skip_save_model_weight"}));
  EXPECT_TRUE(warns_of(recognise(load_case("dcp-consolidated")), {"sub-directories", "sharded"}));
}

TEST(Samples, SlicesOfRanksArePutTogether) {
  const Recognised out = recognise(load_case("paddle-unmerged"));
  EXPECT_EQ(sections_of(out),
            (std::map<std::string, std::size_t>{{"master_weights", 12}, {"model", 12}, {"optimizer", 84}}));
  EXPECT_EQ(out.quantised.size(), 12u);
  const auto has_scales_of_boxes = [](const QuantisedMoments& moments) { return !moments.boxes.empty(); };
  EXPECT_EQ(std::ranges::count_if(out.quantised, has_scales_of_boxes), 3);  // embed_tokens, o_proj, down_proj
  EXPECT_EQ(tensor_of(out, "master_weights", "lm_head.weight").shape, (Shape{64, 96}));
}

TEST(Samples, AMissingShardIsAHole) {
  Directory directory = load_case("dcp-2d");
  for (const char* part : {"1", "2"}) {
    directory.safetensors.erase("shard-00003-model-0000" + std::string(part) + "-of-00002.safetensors");
  }
  EXPECT_THAT(failure_of(directory), AllOf(HasSubstr("tensor '"), HasSubstr("element ["), HasSubstr("is in no file"),
                                           HasSubstr("shard-00001-model-00001-of-00002.safetensors")));
}

TEST(Samples, ShardsOfTwoSavesOverlap) {
  Directory directory = load_case("dcp-1d");
  for (auto& [name, header] : load_case("dcp-2d").safetensors) {
    directory.safetensors.emplace("shard-9" + name.substr(7, 4) + "-model-00001-of-00001.safetensors", header);
  }
  EXPECT_THAT(failure_of(directory), AllOf(HasSubstr("overlaps"), HasSubstr("shard-90")));
}

TEST(Samples, AnotherIndexDoesNotFit) {
  Directory directory = load_case("hf-tied");
  directory.json["model.safetensors.index.json"] = load_case("paddle-one-process").json["model.safetensors.index.json"];
  EXPECT_THAT(failure_of(directory, ErrorKind::kNotFound),
              AllOf(HasSubstr("model-00001-of-00001.safetensors"), HasSubstr("missing"), HasSubstr("tensor '")));
}

}  // namespace
}  // namespace cairn::interop::test
