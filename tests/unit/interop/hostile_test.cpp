// Malicious directories: described or refused, in bounded time and memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "bounded.hpp"
#include "colliding_names.hpp"
#include "interop/outline.hpp"
#include "pickles.hpp"
#include "test_directory.hpp"

namespace cairn::interop::test {
namespace {

using cairn::test::expect_bounded;
using testing::HasSubstr;

constexpr std::uint64_t kMuch = 256 << 20;

std::vector<std::string> repeated_names(const std::string& stem, std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back(stem + std::to_string(i));
  return names;
}

/// A set of two files that have tensors of these names, without an index.
TestDirectory in_two_files(const std::vector<std::string>& names) {
  const auto middle = names.begin() + static_cast<std::ptrdiff_t>(names.size() / 2);
  TestDirectory d;
  d.file_of("model-00001-of-00002.safetensors", {names.begin(), middle});
  d.file_of("model-00002-of-00002.safetensors", {middle, names.end()});
  return d;
}

TEST(HostileDirectory, NamesThatCollideCostNoMoreThanOthers) {
  const std::vector<std::string> names = cairn::test::colliding_names(1 << 16);
  const TestDirectory d = in_two_files(names);
  expect_bounded(4, kMuch, [&] { EXPECT_EQ(recognise(d.directory).tensors.size(), names.size()); });
}

TEST(HostileDirectory, NamesThatCollideInAnOptimizerThatAnIndexDoesNotList) {
  const std::vector<std::string> names = cairn::test::colliding_names(1 << 16);
  TestDirectory d;
  std::vector<std::string> scales;
  for (const std::string& name : names) scales.push_back(name + "/moment1_0@scales");
  d.file_of("optimizer.safetensors", scales, kNumpy).file_of("model.safetensors", {"w"}, kNumpy);
  d.index("optimizer.safetensors.index.json", {{scales.front(), "optimizer.safetensors"}}, 0,
          R"(,"master_weights": false)");
  expect_bounded(4, kMuch, [&] { EXPECT_THAT(failure_of(d.directory), HasSubstr("is a scale of quantised moments")); });
  d.index("optimizer.safetensors.index.json", {{scales.front(), "optimizer.safetensors"}}, 0,
          R"(,"ckpt_quant_stage": "O1")");
  expect_bounded(4, kMuch, [&] { failure_of(d.directory); });
}

TEST(HostileDirectory, NamesThatCollideInFlatSlices) {
  const std::vector<std::string> names = cairn::test::colliding_names(1 << 16);
  TestDirectory d;
  std::map<std::string, std::string> owners;
  std::vector<Tensor> masters;
  std::vector<Tensor> weights;
  for (const std::string& name : names) {
    weights.push_back({name, DType::kBF16, {8, 8}});
    masters.push_back({name, DType::kF32, {128}});
    owners[name] = "master_weights-00001-of-00001.safetensors";
  }
  d.file("model.safetensors", weights, kNumpy).file("master_weights-00001-of-00001.safetensors", masters, kNumpy);
  d.index("master_weights.safetensors.index.json", owners, 0);
  expect_bounded(4, kMuch, [&] { EXPECT_EQ(recognise(d.directory).tensors.size(), 2 * names.size()); });
}

TEST(HostileDirectory, TheFirstOfTwoEqualNamesIsNamed) {
  TestDirectory d;
  d.file_of("model-00001-of-00003.safetensors", {"b", "a", "c"});
  d.file_of("model-00002-of-00003.safetensors", {"d", "c", "e"});
  d.file_of("model-00003-of-00003.safetensors", {"a", "c"});
  EXPECT_THAT(failure_of(d.directory), HasSubstr("model-00002-of-00003.safetensors: tensor 'c' is in this file and in "
                                                 "model-00001-of-00003.safetensors as well"));
}

TEST(HostileDirectory, AParameterOfManyStates) {
  TestDirectory d;
  d.file_of("model.safetensors", {"a"}, kNumpy);
  d.file_of("optimizer.tp00.safetensors", repeated_names("a/s", 50'000), kNumpy);
  d.file_of("optimizer.tp01.safetensors", repeated_names("a/s", 50'000), kNumpy);
  expect_bounded(4, kMuch, [&] { EXPECT_EQ(recognise(d.directory).tensors.size(), 50'001U); });
}

/// Sharding v2 of a parameter without elements, plain and in codes.
TEST(HostileDirectory, FlatSlicesOfAParameterWithoutElements) {
  const auto directory = [](bool is_coded) {
    const std::string empty = "a.empty.weight";
    const std::string full = "a.q_proj.weight";
    TestDirectory d;
    d.file("model-00001-of-00001.safetensors", {{full, DType::kBF16, {64, 64}}, {empty, DType::kBF16, {0, 5}}}, kNumpy);
    for (const char* rank : {"0", "1"}) {
      std::vector<Tensor> state;
      for (const auto& [name, elements] : {std::pair(full, 2048U), std::pair(empty, 0U)}) {
        state.push_back({name + "/moment1_0", is_coded ? DType::kI8 : DType::kF32, {elements}});
        state.push_back({name + "/moment2_0", is_coded ? DType::kU8 : DType::kF32, {elements}});
        state.push_back({name + "/beta1_pow_acc_0", DType::kF32, {1}});
        if (!is_coded) continue;
        for (const char* scales : {"/moment1_0@scales", "/moment2_0@min_scales", "/moment2_0@max_scales"}) {
          state.push_back({name + scales, DType::kF32, {}});
        }
      }
      d.file(std::string("optimizer.shard0") + rank + ".safetensors", state, kNumpy);
    }
    d.json("optimizer.safetensors.index.json", is_coded ? R"({"quant_ckpt_resume_times": 0, "ckpt_quant_stage": "O1"})"
                                                        : R"({"quant_ckpt_resume_times": 0})");
    return d;
  };
  const Recognised plain = recognise(directory(false).directory);
  const auto empty = tensor_of(plain, "optimizer", "a.empty.weight/moment1_0");
  EXPECT_EQ(empty.shape, (Shape{0, 5}));
  ASSERT_EQ(empty.boxes.size(), 1U);
  EXPECT_EQ(empty.boxes[0].box, (Box{{0, 0}, {0, 5}}));
  EXPECT_EQ(tensor_of(plain, "optimizer", "a.q_proj.weight/moment1_0").boxes.size(), 2U);
  EXPECT_THAT(failure_of(directory(true).directory),
              HasSubstr("tensor 'a.empty.weight/moment2_0' cannot be codes of paddle-o1: it has no elements"));
}

/// A configuration or a trainer's log takes no memory except for the values that are used.
TEST(HostileDirectory, LargeTextsAreNotKept) {
  std::string zeros = "[0";
  for (int i = 0; i < 2'000'000; ++i) zeros += ",0";
  zeros += "]";
  TestDirectory d;
  d.file_of("model.safetensors", {"w"});
  d.json("config.json",
         R"({"architectures": )" + zeros + R"(, "transformers_version": "4.57.1", "x": {"a": )" + zeros + "}}");
  d.json("trainer_state.json", R"({"log_history": )" + zeros + R"(, "global_step": 7})");
  Recognised found;
  expect_bounded(10, 16 << 20, [&] { found = recognise(d.directory); });
  EXPECT_EQ(found.about.version, "transformers 4.57.1");
  EXPECT_EQ(found.about.step, 7U);
  // The used value itself is larger than the limit.
  d.json("config.json", R"({"quantization_config": )" + zeros + "}");
  expect_bounded(10, 64 << 20, [&] { found = recognise(d.directory); });
  EXPECT_THAT(found.about.left, testing::ElementsAre(HasSubstr("take more than 16.0 MiB of memory")));
  d.directory.json.erase("config.json");
  d.directory.others["config.json"] = 17 << 20;
  EXPECT_THAT(recognise(d.directory).about.left,
              testing::ElementsAre(HasSubstr("config.json says: it has more than the 16.0 MiB that are looked into")));
}

TEST(HostileDirectory, AConfigurationThatDecidesMustBeOne) {
  TestDirectory d;
  d.file_of("model.safetensors", {"w"}, kNumpy);
  d.directory.others["config.json"] = 17 << 20;
  EXPECT_THAT(failure_of(d.directory), HasSubstr("config.json: it has more than the 16.0 MiB that are looked into"));
}

/// A string of 4 kB in 50,000 places of a scheduler's state.
TEST(HostileDirectory, SharedTextsOfAState) {
  TestDirectory d;
  d.file_of("model.safetensors", {"w"}, kNumpy);
  const std::string shared = pickle::text(std::string(4000, 'x')) + "q" + '\1' + "0";
  std::string uses;
  for (int i = 0; i < 50'000; ++i) uses += std::string("h") + '\1';
  d.content("scheduler.pdparams", pickle::file("](" + shared + uses + "e"));
  Recognised found;
  expect_bounded(5, 64 << 20, [&] { found = recognise(d.directory); });
  EXPECT_FALSE(found.about.values.contains("scheduler"));
  EXPECT_THAT(found.about.left, testing::Contains(HasSubstr("scheduler.pdparams: it is more than the 256 KiB")));
}

/// Short keys of a state, each of which stands for eight names of 4 kB.
TEST(HostileDirectory, NamesOfAStateAreCounted) {
  pickle::Entries weights;
  pickle::Entries names;
  for (int i = 0; i < 8; ++i) {
    weights.emplace_back(std::string(4000, 'x') + std::to_string(i), pickle::counting("f4", {1}, 1));
    names.emplace_back(weights.back().first, pickle::text("p"));
  }
  weights.emplace_back("StructuredToParameterName@@", pickle::dict(names));
  pickle::Entries states;
  for (int i = 0; i < 20'000; ++i) states.emplace_back("p_" + std::to_string(i), pickle::counting("f4", {0}, 1));
  TestDirectory d;
  d.content("model_state.pdparams", pickle::file(pickle::dict(weights)));
  d.content("optimizer.pdopt", pickle::file(pickle::dict(states)));
  expect_bounded(10, kMuch, [&] {
    EXPECT_THAT(failure_of(d.directory), HasSubstr("names up to this one have more bytes than the file"));
  });
}

/// Messages contain nothing that a terminal would obey.
TEST(HostileDirectory, MessagesShowNamesAsTheyAre) {
  const std::string turned = "a\u202eb\u009b31m\u2066";
  TestDirectory d;
  d.file_of("model-00001-of-00002.safetensors", {turned}).file_of("model-00002-of-00002.safetensors", {turned});
  EXPECT_THAT(failure_of(d.directory), HasSubstr(R"('a\xe2\x80\xaeb\xc2\x9b31m\xe2\x81\xa6')"));
}

}  // namespace
}  // namespace cairn::interop::test
