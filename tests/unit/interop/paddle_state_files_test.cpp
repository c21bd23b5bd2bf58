// Small pickles next to PaddlePaddle's tensor files, read as values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "environment.hpp"
#include "interop/paddle/state_files.hpp"
#include "nlohmann/json.hpp"
#include "pickles.hpp"
#include "test_directory.hpp"

namespace cairn::interop::test {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TestDirectory checkpoint() {
  TestDirectory d;
  d.file("model.safetensors", {{"w", DType::kU16, {2}}}, kNumpy);
  return d;
}

std::string schedule() {
  return pickle::file(pickle::dict({{"last_epoch", pickle::integer(3)}, {"last_lr", "G?PbM\xd2\xf1\xa9\xfc"}}));
}

std::string trainer_state(std::uint32_t step) {
  return pickle::file(pickle::object("paddleformers.trainer.trainer_callback", "TrainerState",
                                     pickle::dict({{"global_step", pickle::integer(step)}, {"log_history", "]"}})));
}

TEST(PaddleStateFiles, AreValues) {
  TestDirectory d = checkpoint();
  d.content("scheduler.pdparams", schedule()).content("trainer_state.bin", trainer_state(12));
  d.content("scaler.pdparams", pickle::file(pickle::dict({{"scale", pickle::counting("f4", {1}, 0, 0)}})));
  d.content("rng_state.pth", pickle::file(pickle::dict({{"world_size", pickle::integer(1)}})));
  const About about = recognise(d.directory).about;
  EXPECT_EQ(about.values.at("scheduler"), R"({"last_epoch":3,"last_lr":0.001})");
  EXPECT_EQ(json::parse(about.values.at("trainer_state")), json::parse(R"({"global_step": 12, "log_history": []})"));
  EXPECT_EQ(json::parse(about.values.at("scaler"))["scale"]["values"], json::parse("[0.0]"));
  EXPECT_EQ(about.values.at("rng_state"), R"({"world_size":1})");
  EXPECT_EQ(about.step, 12U);
  EXPECT_THAT(about.left, IsEmpty());
  EXPECT_THAT(about.sources,
              ElementsAre("scheduler.pdparams", "scaler.pdparams", "trainer_state.bin", "rng_state.pth"));
}

TEST(PaddleStateFiles, JsonOfATrainerIsAValue) {
  TestDirectory d = checkpoint();
  d.json("trainer_state.json", R"({ "global_step": 7 })").content("trainer_state.bin", trainer_state(12));
  const About about = recognise(d.directory).about;
  EXPECT_EQ(about.values.at("trainer_state"), R"({"global_step":7})");
  EXPECT_EQ(about.step, 7U);
}

TEST(PaddleStateFiles, AnotherProgramsJsonStaysAsItIsWritten) {
  TestDirectory d = checkpoint();
  d.json("trainer_state.json", R"({"global_step": 6, "global_step": 7,
                                   "loss": [NaN, -Infinity, 1e999, 1E-05, 123456789012345678901], "a b": "\ud800 \" c"})");
  const About about = recognise(d.directory).about;
  EXPECT_EQ(
      about.values.at("trainer_state"),
      R"({"global_step":6,"global_step":7,"loss":[NaN,-Infinity,1e999,1E-05,123456789012345678901],"a b":"\ud800 \" c"})");
  EXPECT_EQ(about.step, 7U);
  EXPECT_THAT(about.left, IsEmpty());
}

TEST(PaddleStateFiles, RandomStatesAreAListOverTheRanks) {
  const std::string one = pickle::dict({{"python", pickle::integer(1)}});
  const auto random = [](const TestDirectory& d) { return recognise(d.directory).about.values.at("rng_state"); };
  TestDirectory nlp = checkpoint();
  nlp.content("rng_state_2.pth", pickle::file(pickle::list({one, one})));
  EXPECT_EQ(random(nlp), R"([{"python":1},{"python":1}])");
  TestDirectory formers = checkpoint();
  for (const char* rank : {"0", "1"}) formers.content(std::string("rng_state_") + rank + ".pth", pickle::file(one));
  EXPECT_EQ(random(formers), R"([{"python":1},{"python":1}])");
  formers.content("rng_state_3.pth", pickle::file(one));
  const About about = recognise(formers.directory).about;
  EXPECT_FALSE(about.values.contains("rng_state"));
  EXPECT_THAT(about.left, ElementsAre(AllOf(HasSubstr("rng_state_0.pth"), HasSubstr("other ranks are missing"))));
}

TEST(PaddleStateFiles, WhatIsNotUnderstoodIsLeft) {
  TestDirectory d = checkpoint();
  d.content("scheduler.pdparams", schedule().substr(0, 30)).content("scaler.pdparams", "");
  d.content("trainer_state.bin", pickle::file(pickle::text("\xff")));
  const About about = recognise(d.directory).about;
  EXPECT_EQ(about.values.size(), 1U);  // "paddle"
  EXPECT_THAT(about.left,
              ElementsAre(HasSubstr("scheduler.pdparams: byte"), HasSubstr("scaler.pdparams: byte"), testing::_));
  EXPECT_FALSE(about.step);
}

TEST(PaddleStateFiles, LargeValuesAreLeft) {
  TestDirectory d = checkpoint();
  d.content("rng_state.pth", pickle::file(pickle::list(std::vector<std::string>(100'000, pickle::integer(1'000'000)))));
  d.content("scaler.pdparams", pickle::file(pickle::text(std::string(2 << 20, 'x'))));
  d.json("trainer_state.json", json{{"global_step", 5}, {"log_history", std::string(300'000, 'x')}}.dump());
  const About about = recognise(d.directory).about;
  EXPECT_EQ(about.values.size(), 1U);
  EXPECT_THAT(about.left, ElementsAre(AllOf(HasSubstr("scaler.pdparams"), HasSubstr("256 KiB")),
                                      HasSubstr("trainer_state.json"), HasSubstr("rng_state.pth")));
  EXPECT_EQ(about.step, 5U);
}

TEST(PaddleStateFiles, FilesAreKnownByTheirNames) {
  for (const char* name :
       {"scheduler.pdparams", "scaler.pdparams", "trainer_state.bin", "rng_state.pth", "rng_state_16.pth"}) {
    EXPECT_TRUE(is_paddle_state_file(name)) << name;
  }
  for (const char* name : {"training_args.bin", "rng_state_.pth", "rng_state_1a.pth", "rng_state_1", "rng_state_",
                           "optimizer.pdopt", "model_state.pdparams"}) {
    EXPECT_FALSE(is_paddle_state_file(name)) << name;
  }
}

}  // namespace
}  // namespace cairn::interop::test
