// A user's view of a checkpoint: moments instead of codes, weights rebuilt from others, and refused rebuild rules.
#include "codes/view.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/error.hpp"

namespace cairn::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

format::StoredTensor tensor(const std::string& section, const std::string& name, DType dtype,
                            std::vector<std::uint64_t> shape = {4}) {
  format::StoredTensor out;
  out.section = section;
  out.name = name;
  out.dtype = dtype;
  out.shape = std::move(shape);
  return out;
}

/// A checkpoint of `tensors`, which must be in catalog order, as after opening.
opening::OpenCheckpoint checkpoint_of(std::vector<format::StoredTensor> tensors, const char* rebuilt = nullptr) {
  opening::OpenCheckpoint opened;
  opened.directory = "somewhere";
  opened.stored.tensors = std::move(tensors);
  if (rebuilt != nullptr) {
    opened.manifest.emplace();
    opened.manifest->extra["rebuilt"] = base::Json::parse(rebuilt, "rebuilt");
  }
  return opened;
}

std::vector<std::string> described(std::span<const codes::ViewTensor> tensors) {
  std::vector<std::string> out;
  for (const codes::ViewTensor& t : tensors) {
    out.push_back(std::string(t.section) + "/" + std::string(t.name) + " " + std::string(name_of(t.dtype)));
  }
  return out;
}

TEST(View, WithoutCodesItIsWhatIsStored) {
  const opening::OpenCheckpoint opened =
      checkpoint_of({tensor("model", "a", DType::kBF16), tensor("optimizer", "a.exp_avg", DType::kF32)});
  const codes::View view = codes::decoded_view(opened, {});
  EXPECT_TRUE(view.as_stored);
  EXPECT_THAT(described(view.tensors), ElementsAre("model/a BF16", "optimizer/a.exp_avg F32"));
  EXPECT_EQ(view.at(1).source, 1U);
  EXPECT_THROW((void)view.at(2), std::out_of_range);
}

opening::OpenCheckpoint coded() {
  opening::OpenCheckpoint opened =
      checkpoint_of({tensor("model", "w", DType::kBF16, {16, 256}), tensor("optimizer", "b.exp_avg", DType::kF32),
                     tensor("optimizer", "w.exp_avg@q8", DType::kU8, {16, 2, 272})});
  opened.quantised = {{{"q8", "w.exp_avg", "w.exp_avg_sq", {16, 256}}, "optimizer", {"w.exp_avg@q8"}}};
  return opened;
}

TEST(View, MomentsStandWhereTheirCodesStood) {
  const opening::OpenCheckpoint opened = coded();
  const codes::View view = codes::decoded_view(opened, {});
  EXPECT_FALSE(view.as_stored);
  EXPECT_THAT(described(view.tensors), ElementsAre("model/w BF16", "optimizer/b.exp_avg F32", "optimizer/w.exp_avg F32",
                                                   "optimizer/w.exp_avg_sq F32"));
  EXPECT_THAT(described(view.parts), ElementsAre("optimizer/w.exp_avg@q8 U8"));
  EXPECT_EQ(view.at(4).name, "w.exp_avg@q8");
  EXPECT_EQ(view.at(2).origin, codes::Origin::kFirstMoment);
  EXPECT_EQ(view.at(3).origin, codes::Origin::kSecondMoment);
  EXPECT_THAT(view.at(3).shape, ElementsAre(16, 256));
  ASSERT_EQ(view.pairs.size(), 1U);
  EXPECT_THAT(view.pairs[0].stored, ElementsAre(2));
  EXPECT_EQ(view.decode.division, quant::Division::kTrue);
  EXPECT_EQ(codes::decoded_view(opened, {true, false}).decode.division, quant::Division::kReciprocal);

  const codes::View stored = codes::stored_view(opened);
  EXPECT_TRUE(stored.as_stored);
  EXPECT_EQ(stored.tensors.size(), 3U);
  EXPECT_EQ(stored.pairs.size(), 1U);
}

TEST(View, MasterWeightsFromTheModel) {
  const char* rule = R"({"master_weights": {"from": "model", "dtype": "F32"}})";
  const opening::OpenCheckpoint opened =
      checkpoint_of({tensor("model", "a", DType::kBF16), tensor("model", "b", DType::kF16),
                     tensor("model", "c", DType::kF32), tensor("model", "d", DType::kBF16),
                     tensor("model", "n", DType::kI64), tensor("master_weights", "d", DType::kF32)},
                    rule);
  const codes::View view = codes::decoded_view(opened, {});
  EXPECT_THAT(described(view.tensors),
              ElementsAre("model/a BF16", "model/b F16", "model/c F32", "model/d BF16", "model/n I64",
                          "master_weights/a F32", "master_weights/b F32", "master_weights/d F32"));
  EXPECT_EQ(view.at(5).origin, codes::Origin::kCast);
  EXPECT_EQ(view.at(5).source, 0U);
  EXPECT_EQ(view.at(7).origin, codes::Origin::kStored);
}

TEST(View, ModelFromTheMasterWeights) {
  const char* rule = R"({"model": {"from": "master_weights", "dtype": "F16"}})";
  const opening::OpenCheckpoint opened =
      checkpoint_of({tensor("model", "a", DType::kF32), tensor("master_weights", "a", DType::kF32),
                     tensor("master_weights", "b", DType::kF32), tensor("master_weights", "c", DType::kBF16)},
                    rule);
  const codes::View view = codes::decoded_view(opened, {});
  EXPECT_THAT(described(view.tensors), ElementsAre("model/a F32", "model/b F16", "master_weights/a F32",
                                                   "master_weights/b F32", "master_weights/c BF16"));
}

TEST(View, CompatibleMasterWeightsOfAnyCheckpoint) {
  const opening::OpenCheckpoint opened = checkpoint_of(
      {tensor("model", "a", DType::kBF16), tensor("model", "b", DType::kF32), tensor("model", "n", DType::kI64)});
  EXPECT_TRUE(codes::decoded_view(opened, {}).as_stored);
  EXPECT_THAT(
      described(codes::decoded_view(opened, {false, true}).tensors),
      ElementsAre("model/a BF16", "model/b F32", "model/n I64", "master_weights/a F32", "master_weights/b F32"));
  const opening::OpenCheckpoint with =
      checkpoint_of({tensor("model", "a", DType::kBF16), tensor("master_weights", "z", DType::kF32)});
  EXPECT_TRUE(codes::decoded_view(with, {false, true}).as_stored);
}

TEST(View, ARuleThatIsNoneIsRefusedByPath) {
  for (const char* rule :
       {"[]", "1", R"({"optimizer": {"from": "model", "dtype": "F32"}})", R"({"master_weights": "model"})",
        R"({"master_weights": {"from": "model"}})", R"({"master_weights": {"from": "model", "dtype": "BF16"}})",
        R"({"master_weights": {"from": "model", "dtype": 1}})", R"({"master_weights": {"from": "x", "dtype": "F32"}})",
        R"({"model": {"from": "master_weights", "dtype": "F32"}})",
        R"({"model": {"from": "master_weights", "dtype": "BF16", "more": 1}})"}) {
    const opening::OpenCheckpoint opened = checkpoint_of({tensor("model", "a", DType::kBF16)}, rule);
    try {
      (void)codes::decoded_view(opened, {});
      ADD_FAILURE() << rule;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat) << rule;
      EXPECT_THAT(error.what(), HasSubstr("somewhere/cairn.json: rebuilt")) << rule;
    }
  }
}

}  // namespace
}  // namespace cairn::checkpoint
