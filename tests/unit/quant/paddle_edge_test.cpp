// The parts that Paddle's codecs store for each shape, and edge values worked out by hand.
#include <limits>

#include "golden_file.hpp"
#include "quant/paddle_codec.hpp"

namespace cairn::quant::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

int signed_code(std::byte code) { return static_cast<std::int8_t>(code); }
int code(std::byte code) { return static_cast<int>(code); }

TEST(PaddleParts, OfO1) {
  const MomentNames names = {"w/moment1_0", "w/moment2_0"};
  for (const Shape& shape : {Shape{5}, Shape{5, 3}}) {
    const Shape scales = shape.size() == 1 ? Shape{} : Shape{3};
    const auto parts = paddle_o1().parts(shape);
    ASSERT_EQ(parts.size(), 5u);
    EXPECT_EQ(parts[0], (Part{Moment::kFirst, "", Role::kCodes, DType::kI8, shape}));
    EXPECT_EQ(parts[2], (Part{Moment::kSecond, "", Role::kCodes, DType::kU8, shape}));
    for (const std::size_t i : {1u, 3u, 4u}) {
      EXPECT_EQ(parts[i].dtype, DType::kF32);
      EXPECT_EQ(parts[i].shape, scales);
      EXPECT_EQ(parts[i].role, Role::kScales);
    }
    EXPECT_EQ(stored_name(parts[1], names), "w/moment1_0@scales");
    EXPECT_EQ(stored_name(parts[3], names), "w/moment2_0@min_scales");
    EXPECT_EQ(stored_name(parts[4], names), "w/moment2_0@max_scales");
  }
}

TEST(PaddleParts, OfO2) {
  const auto parts = paddle_o2().parts({96, 7});
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0], (Part{Moment::kSecond, "", Role::kCodes, DType::kI8, {96, 7}}));
  EXPECT_EQ(parts[1], (Part{Moment::kFirst, "@scales", Role::kScales, DType::kF32, {3, 7}}));
  EXPECT_EQ(parts[2], (Part{Moment::kSecond, "@min_scales", Role::kScales, DType::kF32, {3, 7}}));
  EXPECT_EQ(parts[3], (Part{Moment::kSecond, "@max_scales", Role::kScales, DType::kF32, {3, 7}}));
}

TEST(PaddleParts, BoxesOfTheParts) {
  const Box box = {{40, 2}, {30, 3}};
  EXPECT_EQ(paddle_o1().part_box({96, 7}, 2, box), box);
  EXPECT_EQ(paddle_o1().part_box({96, 7}, 4, box), (Box{{2}, {3}}));
  EXPECT_EQ(paddle_o1().part_box({96}, 4, {{5}, {6}}), Box{});
  EXPECT_EQ(paddle_o2().part_box({96, 7}, 0, box), box);
  EXPECT_EQ(paddle_o2().part_box({96, 7}, 1, box), (Box{{1, 2}, {2, 3}}));
  EXPECT_EQ(paddle_o2().part_box({96, 7}, 1, {{32, 0}, {32, 7}}), (Box{{1, 0}, {1, 7}}));
}

TEST(PaddleParts, WhatIsLeftAloneSaysWhy) {
  for (const Codec* codec : {&paddle_o1(), &paddle_o2()}) {
    EXPECT_EQ(codec->left_alone({}), "it is a scalar");
    EXPECT_EQ(codec->left_alone({0}), "it has no elements");
    EXPECT_EQ(codec->left_alone({0, 4}), "it has no elements");
    EXPECT_EQ(codec->left_alone({32, 0}), "it has no elements");
    EXPECT_THAT(codec->left_alone({32, 4, 3}), testing::HasSubstr("this one has 3"));
    EXPECT_EQ(codec->left_alone({64, 3}), "");
  }
  EXPECT_EQ(paddle_o1().left_alone({33, 3}), "");
  EXPECT_EQ(paddle_o1().left_alone({33}), "");
  EXPECT_THAT(paddle_o2().left_alone({33, 3}), testing::HasSubstr("33 rows"));
  EXPECT_THAT(paddle_o2().left_alone({32}), testing::HasSubstr("1 dimension"));
}

TEST(PaddleValues, OfOneDimensionWorkedByHand) {
  const Source source = {"w", {3}};
  const Encoded encoded = encode_whole(paddle_o1(), source,
                                       {std::vector<float>{1e-3F, -2e-3F, 0},  //
                                        std::vector<float>{1e-6F, 4e-6F, 0}});
  EXPECT_EQ(signed_code(encoded[0][0]), 64);  // 63.5 rounds to even
  EXPECT_EQ(signed_code(encoded[0][1]), -127);
  EXPECT_EQ(signed_code(encoded[0][2]), 0);
  EXPECT_EQ(as_floats(encoded[1]), std::vector<float>{2e-3F});
  EXPECT_EQ(code(encoded[2][0]), 0);
  EXPECT_EQ(code(encoded[2][1]), 0);
  EXPECT_EQ(code(encoded[2][2]), 255);
  EXPECT_EQ(as_floats(encoded[4]), std::vector<float>{1e8F});
  const State found = decoded(paddle_o1(), source, encoded, Division::kTrue);
  EXPECT_EQ(found.m[1], -2e-3F);
  EXPECT_EQ(found.v[2], 0.0F);  // 1/1e8 - 1e-8
}

TEST(PaddleValues, TheTwoCodesOfO2ShareAByte) {
  State state(32);
  for (std::size_t i = 0; i < 32; ++i) {
    state.m[i] = static_cast<float>(i % 8) * (i % 2 == 0 ? 1.0F : -1.0F);
    state.v[i] = 1.0F / static_cast<float>((i % 16 + 1) * (i % 16 + 1));  // r = 1 ... 16
  }
  const Encoded encoded = encode_whole(paddle_o2(), {"w", {32, 1}}, state.view());
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(signed_code(encoded[0][i]) >> 4, static_cast<int>(state.m[i])) << i;
    EXPECT_EQ(code(encoded[0][i]) & 15, static_cast<int>(i % 16)) << i;
  }
}

TEST(PaddleValues, OneBadValueIsBadInItsColumnOnly) {
  for (const Codec* codec : {&paddle_o1(), &paddle_o2()}) {
    const Source source = {"w", {32, 3}};
    State state(std::vector<float>(96, 0.5F), std::vector<float>(96, 0.25F));
    state.m[4] = kNan;  // column 1
    state.v[5] = -1;    // column 2: its root is NaN
    const State found = decoded(*codec, source, encode_whole(*codec, source, state.view()), Division::kTrue);
    for (std::size_t row = 0; row < 32; ++row) {
      EXPECT_EQ(found.m[row * 3], 0.5F);
      EXPECT_TRUE(std::isnan(found.m[row * 3 + 1]));
      EXPECT_EQ(found.m[row * 3 + 2], 0.5F);
      EXPECT_FALSE(std::isnan(found.v[row * 3 + 1]));
      EXPECT_TRUE(std::isnan(found.v[row * 3 + 2]));
    }
  }
}

TEST(PaddleValues, InfiniteMomentsHaveCodeZero) {
  const Encoded encoded = encode_whole(paddle_o1(), {"w", {3}},
                                       {std::vector<float>{1, kInfinity, -1}, std::vector<float>{1, kInfinity, 4}});
  for (const std::byte m : encoded[0]) EXPECT_EQ(signed_code(m), 0);
  EXPECT_EQ(as_floats(encoded[1]), std::vector<float>{kInfinity});
  EXPECT_EQ(as_floats(encoded[3]), std::vector<float>{1e-8F});  // r = 0, replaced
  EXPECT_EQ(code(encoded[2][1]), 0);
  EXPECT_EQ(code(encoded[2][0]), 255);
}

TEST(PaddleValues, DecodingTwiceGivesTheSameCodesForM) {
  // m drifts in the last bit at most, so its codes stay the same; Paddle still allows only one quantised resume.
  State state(64);
  for (std::size_t i = 0; i < 64; ++i) {
    state.m[i] = 1e-4F * static_cast<float>(static_cast<int>(i * 37 % 64) - 31);
    state.v[i] = 1e-9F * static_cast<float>(1 + i * 11 % 64);
  }
  const Source source = {"w", {64, 1}};
  const Encoded once = encode_whole(paddle_o1(), source, state.view());
  const State back = decoded(paddle_o1(), source, once, Division::kTrue);
  EXPECT_EQ(encode_whole(paddle_o1(), source, back.view())[0], once[0]);
}

}  // namespace
}  // namespace cairn::quant::test
