// Numbered files of one set, as many programs name them: which are whole, and which name a missing file would have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "test_directory.hpp"

namespace cairn::interop::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr std::uint64_t kTensorBytes = 24;  // each tensor of file_of(): F32 [2, 3]
constexpr const char* kIndex = "model.safetensors.index.json";

/// One tensor in each file: "t0" in the first.
TestDirectory directory_of(const std::vector<std::string>& files) {
  TestDirectory d;
  for (std::size_t i = 0; i < files.size(); ++i) d.file_of(files[i], {"t" + std::to_string(i)});
  return d;
}

/// The same with an index.
TestDirectory indexed(const std::vector<std::string>& files) {
  TestDirectory d = directory_of(files);
  std::map<std::string, std::string> weight_map;
  for (std::size_t i = 0; i < files.size(); ++i) weight_map["t" + std::to_string(i)] = files[i];
  d.index(kIndex, weight_map, kTensorBytes * files.size());
  return d;
}

const std::map<std::string, std::vector<std::string>> kWhole = {
    {"from 1", {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}},
    {"from 0", {"model-00000-of-00002.safetensors", "model-00001-of-00002.safetensors"}},
    {"from 0 to N",
     {"model-00000-of-00002.safetensors", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}},
    {"only 0", {"model-00000-of-00001.safetensors"}},
    {"six digits", {"model-00001-of-000002.safetensors", "model-00002-of-000002.safetensors"}},
    {"no padding", {"model-1-of-2.safetensors", "model-2-of-2.safetensors"}},
    {"numbers behind", {"model.safetensors-00001-of-00002", "model.safetensors-00002-of-00002"}},
    {"suffix twice", {"model.safetensors-00001-of-00002.safetensors", "model.safetensors-00002-of-00002.safetensors"}},
};

TEST(FileSets, AreWholeHoweverTheyAreNumbered) {
  for (const auto& [kind, files] : kWhole) {
    for (const bool has_index : {false, true}) {
      const auto found = recognise((has_index ? indexed(files) : directory_of(files)).directory);
      EXPECT_EQ(sections_of(found), (std::map<std::string, std::size_t>{{"model", files.size()}})) << kind;
      EXPECT_EQ(warns_of(found, {"have no index"}), !has_index && files.size() > 1) << kind;
    }
  }
}

TEST(FileSets, MissOneFileUnderTheNameThatItWouldHave) {
  const auto missing = [](const std::vector<std::string>& files) {
    return failure_of(directory_of(files).directory, ErrorKind::kNotFound);
  };
  EXPECT_THAT(missing({"model-00000-of-00003.safetensors", "model-00001-of-00003.safetensors"}),
              AllOf(HasSubstr("(model-00002-of-00003.safetensors)"), Not(HasSubstr("so are"))));
  EXPECT_THAT(missing({"model-00000-of-00002.safetensors", "model-00002-of-00002.safetensors"}),
              HasSubstr("(model-00001-of-00002.safetensors)"));
  EXPECT_THAT(missing({"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"}),
              HasSubstr("(model-00003-of-00003.safetensors, or model-00000-of-00003.safetensors if"));
  EXPECT_THAT(missing({"model-1-of-12.safetensors", "model-10-of-12.safetensors"}),
              AllOf(HasSubstr("(model-2-of-12.safetensors)"), HasSubstr("so are numbers 3, 4, 5, 6, 7, 8, 9, 11, 12")));
  EXPECT_THAT(missing({"model.safetensors-00002-of-00002"}), HasSubstr("(model.safetensors-00001-of-00002)"));
  EXPECT_THAT(missing({"model-00001-of-000002.safetensors"}), HasSubstr("model-00002-of-000002.safetensors"));
}

TEST(FileSets, AnIndexOfAnotherSaveIsNotTakenForMissingFiles) {
  TestDirectory d = directory_of({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"});
  d.index(kIndex, {{"t0", "model-00001-of-00003.safetensors"}, {"t1", "model-00003-of-00003.safetensors"}}, 1);
  EXPECT_THAT(failure_of(d.directory, ErrorKind::kNotFound),
              AllOf(HasSubstr("model-00001-of-00002.safetensors, model-00002-of-00002.safetensors are a complete set"),
                    HasSubstr("leftover of another save")));
  d.file_of("model-00001-of-00003.safetensors", {"t0"});
  EXPECT_THAT(failure_of(d.directory, ErrorKind::kNotFound),
              AllOf(HasSubstr("model-00003-of-00003.safetensors: the file is missing"), HasSubstr("a complete set"),
                    Not(HasSubstr("leftover"))));
  TestDirectory half = directory_of({"model-00002-of-00002.safetensors"});
  half.index(kIndex, {{"t0", "model-00001-of-00003.safetensors"}}, 1);
  EXPECT_THAT(failure_of(half.directory, ErrorKind::kNotFound), Not(HasSubstr("complete set")));
}

TEST(FileSets, ASecondCopyIsSaid) {
  TestDirectory d = directory_of({"model.safetensors"});
  EXPECT_FALSE(warns_of(recognise(d.directory), {"consolidated"}));
  d.file_of("consolidated.safetensors", {"u0"});
  const auto found = recognise(d.directory);
  EXPECT_TRUE(warns_of(found, {"'consolidated'", "second copy"}));
  EXPECT_EQ(sections_of(found), (std::map<std::string, std::size_t>{{"model", 1}, {"consolidated", 1}}));
}

TEST(FileSets, FilesThatAreSecondCopiesByTheirNamesAreRefused) {
  TestDirectory d = directory_of({"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"});
  d.file_of("model (1).safetensors", {"u0"});
  EXPECT_THAT(
      failure_of(d.directory),
      HasSubstr("model (1).safetensors: by its name this is a second copy of model.safetensors, which is not here"));
  d.file_of("other.safetensors", {"u1"});
  d.directory.safetensors.erase("model (1).safetensors");
  d.file_of("Other copy.safetensors", {"u0"});
  EXPECT_EQ(sections_of(recognise(d.directory)).size(), 3U);
  d.directory.form = "hf";  // a section of Cairn's own may have any name
  d.file_of("other copy.safetensors", {"u0"});
  EXPECT_EQ(sections_of(recognise(d.directory)).size(), 4U);
}

TEST(FileSets, FilesWithoutTensorsAreSaid) {
  TestDirectory d = directory_of({"model.safetensors"});
  d.file_of("vae.safetensors", {});
  EXPECT_TRUE(warns_of(recognise(d.directory), {"1 file is without a single tensor: vae.safetensors"}));
}

TEST(FileSets, SlicesOfRanksAreNoModel) {
  for (const char* file : {"model-rank-0-part-0.safetensors", "rank0.safetensors", "tiny_rank_0-1_2.safetensors",
                           "model-TP-000.safetensors"}) {
    TestDirectory d = directory_of({file});
    EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr(file), HasSubstr("one rank's slices"))) << file;
    d.directory.alone = true;
    EXPECT_THAT(failure_of(d.directory), HasSubstr("one rank's slices")) << file;
    d.directory.alone = false;
    d.json("cairn.json", "{}").directory.form = "hf";
    EXPECT_EQ(sections_of(recognise(d.directory)).size(), 1U) << "a section that Cairn wrote";
  }
  const auto adapter = TestDirectory().file_of("style_rank_64.safetensors", {"unet.lora_A.weight"}).directory;
  EXPECT_EQ(sections_of(recognise(adapter)).size(), 1U);
}

}  // namespace
}  // namespace cairn::interop::test
