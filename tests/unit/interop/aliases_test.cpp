// Names of tied weights in the metadata: which are aliases, which dangle, and which entries are neither.
#include "interop/aliases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn::interop::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

plan::StoredTensors tensors_of(const std::vector<std::string>& names) {
  std::vector<format::StoredTensor> tensors;
  for (const std::string& name : names) {
    format::StoredTensor& tensor = tensors.emplace_back();
    tensor.section = "model";
    tensor.name = name;
    tensor.dtype = DType::kF32;
    tensor.shape = {2, 3};
  }
  return tensors;
}

TEST(Aliases, AreRemovedNamesOfStoredTensors) {
  const Aliases aliases = aliases_of(
      {{"format", "pt"}, {"shared.weight", "decoder.weight"}, {"head", "decoder.weight"}, {"note", "a.weight"}},
      tensors_of({"decoder.weight", "other"}));
  EXPECT_THAT(aliases.kept_of, ElementsAre(Pair("head", "decoder.weight"), Pair("shared.weight", "decoder.weight")));
  EXPECT_THAT(aliases.dangling, IsEmpty());
}

TEST(Aliases, OfStoredNamesAreNone) {
  const Aliases aliases = aliases_of({{"a.weight", "b.weight"}, {"c.weight", "lost.weight"}},
                                     tensors_of({"a.weight", "b.weight", "c.weight"}));
  EXPECT_THAT(aliases.kept_of, IsEmpty());
  EXPECT_THAT(aliases.dangling, IsEmpty());
}

TEST(Aliases, DangleIfBothAreLikeParametersOfOneKind) {
  const auto tensors = tensors_of({"other.weight"});
  EXPECT_THAT(
      aliases_of({{"shared.weight", "lost.weight"}}, tensors).dangling,
      ElementsAre(HasSubstr("tensor 'shared.weight' is the same as 'lost.weight', which is not stored either")));
  for (const auto& [key, value] :
       {std::pair{"format", "pt"}, {"title", "an.example"}, {"a.weight", "a.bias"}, {"version.weight", "1.0.0"}}) {
    EXPECT_THAT(aliases_of({{key, value}}, tensors).dangling, IsEmpty()) << key;
  }
  EXPECT_THAT(aliases_of({}, tensors).dangling, IsEmpty());
}

}  // namespace
}  // namespace cairn::interop::test
