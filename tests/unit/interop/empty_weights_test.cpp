// Weights of shape [0], as ZeRO-3 leaves them, and tensors that may have no elements.
#include "interop/empty_weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cairn::interop::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

format::StoredTensor tensor(const std::string& name, const std::vector<std::uint64_t>& shape = {0},
                            DType dtype = DType::kBF16, const std::string& section = "model") {
  format::StoredTensor out;
  out.section = section;
  out.name = name;
  out.dtype = dtype;
  out.shape = shape;
  return out;
}

std::vector<std::string> names_in(const std::vector<format::StoredTensor>& tensors) {
  const EmptyWeights empty = empty_weights(tensors);
  EXPECT_EQ(empty.words.empty(), empty.names.empty());
  return empty.names;
}

TEST(EmptyWeights, AreWeightsAndWhatHasElementsInOtherLayers) {
  EXPECT_THAT(names_in({tensor("a.norm.weight", {4}), tensor("a.up.bias"), tensor("a.up.weight"), tensor("b.bias"),
                        tensor("b.weight", {0, 4}), tensor("h.0.gate", {4}), tensor("h.10.gate"), tensor("x.0.gate"),
                        tensor("experts.gate_up_proj"), tensor("q.lora_A.default")}),
              ElementsAre("a.up.bias", "a.up.weight", "experts.gate_up_proj", "h.10.gate", "q.lora_A.default"));
}

TEST(EmptyWeights, AreNotWhatMayBeEmpty) {
  EXPECT_THAT(names_in({tensor("a.bias"), tensor("a.weight", {4, 0}), tensor("b.weight", {0}, DType::kI64),
                        tensor("c._extra_state", {0}, DType::kU8), tensor("d.scale"),
                        tensor("e.weight", {0}, DType::kF32, "optimizer"), tensor("f.weight", {})}),
              IsEmpty());
  EXPECT_THAT(names_in({}), IsEmpty());
}

TEST(EmptyWeights, AreToldInOneLine) {
  const EmptyWeights empty = empty_weights(std::vector{tensor("a.weight"), tensor("norm.weight", {16})});
  EXPECT_THAT(empty.words, HasSubstr("1 of 2 tensors have shape [0], as ZeRO-3 leaves weights on a rank: a.weight; "));
  EXPECT_THAT(empty.words, HasSubstr("save with stage3_gather_16bit_weights_on_model_save"));
}

}  // namespace
}  // namespace cairn::interop::test
