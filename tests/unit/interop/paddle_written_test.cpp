// The extra files for Paddle's trainers, without tensors.
#include "interop/paddle/written.hpp"

#include <gtest/gtest.h>

namespace cairn::interop {
namespace {

using namespace std::string_literals;

TEST(PaddleWritten, SchedulersAreTheBytesThatPaddleSaves) {
  // From a run of PaddleNLP 3.0.0b4: {"last_epoch": 3, "last_lr": 0.0008571428571428571}.
  EXPECT_EQ(encode_scheduler(3, 0.0008571428571428571),
            "\x80\x04\x95\x27\0\0\0\0\0\0\0}\x94(\x8C\nlast_epoch\x94K\x03\x8C\x07last_lr\x94G\x3F\x4C\x16\x3C\x45\x0B"
            "\xFE\xD4u."s);
}

TEST(PaddleWritten, LargeEpochsHaveWiderNumbers) {
  const auto epoch_of = [](std::uint64_t epoch) {
    const std::string text = encode_scheduler(epoch, 0);
    const std::size_t begin = text.find("last_epoch\x94") + 11;
    EXPECT_EQ(static_cast<unsigned char>(text[3]), text.size() - 11);
    return text.substr(begin, text.find("\x8C\x07last_lr") - begin);
  };
  EXPECT_EQ(epoch_of(0), "K\0"s);
  EXPECT_EQ(epoch_of(255), "K\xFF"s);
  EXPECT_EQ(epoch_of(256), "M\0\x01"s);
  EXPECT_EQ(epoch_of(65535), "M\xFF\xFF"s);
  EXPECT_EQ(epoch_of(65536), "J\0\0\x01\0"s);
  EXPECT_EQ(epoch_of(0x7FFFFFFF), "J\xFF\xFF\xFF\x7F"s);
  EXPECT_EQ(epoch_of(0x80000000), "\x8A\x09\0\0\0\x80\0\0\0\0\0"s);
}

TEST(PaddleWritten, TheStepIsInTheFormOfThePackage) {
  EXPECT_EQ(encode_trainer_state(*paddle_package("paddlenlp"), 1234), "{\n  \"global_step\": 1234\n}\n");
  EXPECT_EQ(encode_trainer_state(*paddle_package("paddleformers"), 1234),
            "\x80\x04\x95\x4D\0\0\0\0\0\0\0\x8C\x26paddleformers.trainer.trainer_callback\x8C\x0CTrainerState\x93)\x81}"
            "\x8C\x0Bglobal_stepM\xD2\x04sb."s);
}

TEST(PaddleWritten, IndexesHaveWhatLoadersAskFor) {
  PaddleIndex index;
  index.tensors = {{"a.weight/moment1_0", 0}, {"b\"/moment1_0", 1}};
  index.files = {"optimizer-00001-of-00002.safetensors", "optimizer-00002-of-00002.safetensors"};
  index.total_bytes = 12;
  const std::string end = end_paddle_index({{"master_weights", "true"}, {"quant_ckpt_resume_times", "1"}});
  EXPECT_EQ(begin_paddle_index(index) + end, R"({
    "metadata": {
        "total_size": 12
    },
    "weight_map": {
        "a.weight/moment1_0": "optimizer-00001-of-00002.safetensors",
        "b\"/moment1_0": "optimizer-00002-of-00002.safetensors"
    },
    "master_weights": true,
    "quant_ckpt_resume_times": 1
})");
}

TEST(PaddleWritten, StatesComeBack) {
  for (const PaddleState& state :
       {PaddleState{}, PaddleState{"O1", 1, true, true}, PaddleState{"O2", 0, false, false}}) {
    EXPECT_EQ(parse_paddle_state(encode_paddle_state(state)), state);
  }
  for (const char* text : {"", "3", "[]x", R"({"quant_ckpt_resume_times": "1"})"}) {
    EXPECT_NE(parse_paddle_state(text), (PaddleState{"O1", 0, {}, false})) << text;
  }
  EXPECT_EQ(parse_paddle_state(R"({"quant_ckpt_resume_times": "1"})"), std::nullopt);
}

}  // namespace
}  // namespace cairn::interop
