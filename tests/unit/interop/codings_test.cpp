// Moments coded by Cairn: the metadata of its files, and every mismatch between metadata and tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "format/stored_checkpoint.hpp"
#include "test_directory.hpp"

namespace cairn::interop::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kFile = "optimizer.safetensors";

format::Coding coding() { return {"q8", "w.exp_avg", "w.exp_avg_sq", {16, 256}}; }

/// A directory with the codes of w's moments and their metadata entry.
TestDirectory directory_with(const std::string& note, const std::string& key = "cairn.coding/w.exp_avg@q8") {
  TestDirectory d;
  d.file(kFile, {{"b.exp_avg", DType::kF32, {8}}, {"w.exp_avg@q8", DType::kU8, {16, 2, 272}}}, {{key, note}});
  return d;
}

TEST(Codings, AreFound) {
  const Recognised out = recognise(directory_with(format::encode_coding(coding())).directory);
  ASSERT_EQ(out.quantised.size(), 1u);
  const QuantisedMoments& moments = out.quantised[0];
  EXPECT_EQ(moments.codec, "q8");
  EXPECT_EQ(moments.first, "w.exp_avg");
  EXPECT_EQ(moments.second, "w.exp_avg_sq");
  EXPECT_EQ(moments.shape, (std::vector<std::uint64_t>{16, 256}));
  EXPECT_THAT(moments.parts, ElementsAre("w.exp_avg@q8"));
  EXPECT_EQ(out.tensors.size(), 2u);
}

TEST(Codings, PaddlesCodecInCairnsFile) {
  TestDirectory d;
  d.file(kFile,
         {{"w/moment1_0", DType::kI8, {64, 3}},
          {"w/moment1_0@scales", DType::kF32, {3}},
          {"w/moment2_0", DType::kU8, {64, 3}},
          {"w/moment2_0@min_scales", DType::kF32, {3}},
          {"w/moment2_0@max_scales", DType::kF32, {3}}},
         {{"cairn.coding/w/moment1_0", format::encode_coding({"paddle-o1", "w/moment1_0", "w/moment2_0", {64, 3}})},
          {"format", "np"}});
  const Recognised out = recognise(d.directory);
  ASSERT_EQ(out.quantised.size(), 1u);
  EXPECT_EQ(out.quantised[0].codec, "paddle-o1");
  EXPECT_EQ(out.quantised[0].parts.size(), 5u);
}

TEST(Codings, WhatDoesNotFitIsRefusedByName) {
  const auto failure = [](format::Coding changed) {
    return failure_of(directory_with(format::encode_coding(changed)).directory);
  };
  format::Coding other = coding();
  other.codec = "q9";
  EXPECT_THAT(failure(other),
              AllOf(HasSubstr(kFile), HasSubstr("'w.exp_avg'"), HasSubstr("q9"), HasSubstr("paddle-o1")));
  other = coding();
  other.codec = "q4";
  EXPECT_THAT(failure(other), AllOf(HasSubstr("'w.exp_avg'"), HasSubstr("'w.exp_avg@q4' is missing")));
  other = coding();
  other.shape = {16, 384};
  EXPECT_THAT(failure(other), AllOf(HasSubstr("'w.exp_avg@q8'"), HasSubstr("[16, 3, 272]"), HasSubstr("[16, 2, 272]")));
  other.shape = {4096};
  EXPECT_THAT(failure(other), AllOf(HasSubstr("'w.exp_avg'"), HasSubstr("fewer than 2 dimensions")));
  other = coding();
  other.second = "b.exp_avg";
  EXPECT_THAT(failure(other), AllOf(HasSubstr("'w.exp_avg'"), HasSubstr("'b.exp_avg' is stored twice")));
}

TEST(Codings, AForgedShapeIsRefusedByTheTensorsName) {
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 40;
  const std::vector<std::vector<std::uint64_t>> shapes = {
      {},                                      // no dimensions
      {0, 4096},                               // no elements
      {4096, 0},                               // no elements in a row
      {kHuge, kHuge},                          // 2^80 elements
      {~std::uint64_t{0}, ~std::uint64_t{0}},  // the largest sizes
      {kHuge, kHuge, 0},                       // overflows, and has no elements
      {std::uint64_t{1} << 62, 2},             // 2^63 elements: their bytes do not fit 64 bits
      {std::uint64_t{1} << 32, 256},           // more elements than the file has codes
      {1, 1, 1, 1, 1, 1, 1, 16, 256},          // too many dimensions
      {256, 16},                               // the same number of elements in different blocks
      {16, 257}};                              // one more block in each row
  for (const auto& shape : shapes) {
    for (const std::string codec : {"q8", "q4", "paddle-o1", "paddle-o2"}) {
      format::Coding forged = coding();
      forged.codec = codec;
      forged.shape = shape;
      const std::string failure = failure_of(directory_with(format::encode_coding(forged)).directory);
      EXPECT_THAT(failure, AllOf(HasSubstr(kFile), HasSubstr("w.exp_avg")))
          << codec << ' ' << testing::PrintToString(shape);
    }
  }
}

TEST(Codings, ANoteWithoutItsTensorIsRefused) {
  const std::string note = format::encode_coding(coding());
  EXPECT_THAT(failure_of(directory_with(note, "cairn.coding/gone").directory),
              AllOf(HasSubstr(kFile), HasSubstr("'gone' is missing")));
}

TEST(Codings, OfManyParametersWithLongNames) {
  TestDirectory d;
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> notes;
  for (int i = 0; i < 20; ++i) {
    const std::string name = "model.layers." + std::to_string(i) + ".self_attn.q_proj.weight.exp_avg";
    tensors.push_back({name + "@q8", DType::kU8, {16, 2, 272}});
    notes["cairn.coding/" + name + "@q8"] = format::encode_coding({"q8", name, name + "_sq", {16, 256}});
  }
  d.file(kFile, tensors, notes);
  EXPECT_EQ(recognise(d.directory).quantised.size(), 20u);
}

TEST(Codings, AMomentThatIsCodedTwiceIsRefused) {
  TestDirectory d;
  format::Coding q4 = coding();
  q4.codec = "q4";
  d.file(kFile, {{"w.exp_avg@q8", DType::kU8, {16, 2, 272}}, {"w.exp_avg@q4", DType::kU8, {16, 2, 152}}},
         {{"cairn.coding/w.exp_avg@q8", format::encode_coding(coding())},
          {"cairn.coding/w.exp_avg@q4", format::encode_coding(q4)}});
  EXPECT_THAT(failure_of(d.directory), AllOf(HasSubstr("'w.exp_avg'"), HasSubstr("coded twice")));
}

TEST(Codings, BrokenNotesAreRefused) {
  for (const std::string note : {"", "7", "{}", R"({"codec":"q8","first":"a","second":"b","shape":[-1]})",
                                 R"({"codec":"q8","first":"a","second":"b","shape":[1],"more":1})",
                                 R"({"codec":8,"first":"a","second":"b","shape":[1]})"}) {
    EXPECT_THAT(failure_of(directory_with(note).directory), AllOf(HasSubstr(kFile), HasSubstr("cairn.coding/")))
        << note;
  }
}

}  // namespace
}  // namespace cairn::interop::test
