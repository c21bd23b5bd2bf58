// The registry, separate statistics, and refusals by name.
#include <algorithm>
#include <limits>

#include "golden_file.hpp"
#include "quant/boxes.hpp"
#include "quant/codec.hpp"
#include "quant/paddle_codec.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant::test {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

base::Bytes bytes_of_floats(const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

TEST(Registry, FindsEveryCodecByItsName) {
  ASSERT_GE(all_codecs().size(), 2u);
  for (const Codec* codec : all_codecs()) {
    EXPECT_EQ(&find_codec(codec->traits().name), codec);
    EXPECT_TRUE(codec->traits().bits == 8 || codec->traits().bits == 4);
    EXPECT_FALSE(codec->traits().blocks.empty());
    EXPECT_EQ(codec->traits().block_elements > 1, codec->traits().cut == Cut::kWholeBlocks);
    EXPECT_FALSE(codec->traits().error_bounds.empty());
  }
  EXPECT_EQ(&find_codec("paddle-o1"), &paddle_o1());
  EXPECT_EQ(&find_codec("paddle-o2"), &paddle_o2());
}

TEST(Registry, AnErrorListsTheNames) {
  expect_error(ErrorKind::kUsage, [] { (void)find_codec("O1\n"); }, {"'O1\\x0a'", "paddle-o1, paddle-o2"});
}

TEST(Statistics, NanWinsInAnyOrder) {
  for (const auto reduction : {Reduction::kMin, Reduction::kMax}) {
    EXPECT_TRUE(std::isnan(reduced(reduction, kNan, 1)));
    EXPECT_TRUE(std::isnan(reduced(reduction, 1, kNan)));
    EXPECT_TRUE(std::isnan(reduced(reduction, kNan, kInfinity)));
    EXPECT_TRUE(std::isnan(reduced(reduction, -kInfinity, kNan)));
  }
  EXPECT_EQ(reduced(Reduction::kMin, 2, 1), 1);
  EXPECT_EQ(reduced(Reduction::kMin, 1, 2), 1);
  EXPECT_EQ(reduced(Reduction::kMax, 2, 1), 2);
  EXPECT_EQ(reduced(Reduction::kMax, 1, 2), 2);
}

TEST(Statistics, MergeTakesOnlyWhatBothCover) {
  const auto array = [](std::vector<float> values) {
    return std::vector<Statistics::Array>{{Reduction::kMax, std::move(values)}};
  };
  Statistics into = {{{0, 0}, {2, 3}}, array({0, 0, 0, 0, 0, 0})};
  merge(into, {{{1, 2}, {3, 2}}, array({1, 2, 3, 4, 5, 6})});
  EXPECT_EQ(into.arrays[0].values, (std::vector<float>{0, 0, 0, 0, 0, 1}));
  merge(into, {{{2, 0}, {1, 3}}, array({7, 7, 7})});
  EXPECT_EQ(into.arrays[0].values, (std::vector<float>{0, 0, 0, 0, 0, 1}));
  merge(into, {{{0, 1}, {2, 1}}, array({8, 9})});
  EXPECT_EQ(into.arrays[0].values, (std::vector<float>{0, 8, 0, 0, 9, 1}));
}

TEST(Statistics, OneReductionOfIntegersMergesAllArrays) {
  const std::vector<float> values = {kNan,   -kInfinity, -3e38F, -1.5F, -1e-40F, -0.0F,    0.0F,
                                     1e-40F, 1e-8F,      1,      1.5F,  3e38F,   kInfinity};
  int pairs = 0;
  for (const float a : values) {
    for (const float b : values) {
      const auto both = [](float value) {
        return Statistics{Box{}, {{Reduction::kMax, {value}}, {Reduction::kMin, {value}}}};
      };
      auto keys = reduction_keys(both(a));
      const auto others = reduction_keys(both(b));
      ASSERT_EQ(keys.size(), 2u);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_LT(keys[i], std::uint64_t{1} << 32);
        keys[i] = std::max(keys[i], others[i]);
      }
      Statistics found = both(123);
      take_reduction_keys(keys, found);
      Statistics expected = both(a);
      merge(expected, both(b));
      for (std::size_t i = 0; i < 2; ++i) {
        if (a == 0 && b == 0) {
          EXPECT_EQ(found.arrays[i].values[0], 0);  // of either sign
        } else {
          EXPECT_TRUE(same_floats(found.arrays[i].values, expected.arrays[i].values)) << a << " and " << b;
        }
      }
      ++pairs;
    }
  }
  EXPECT_EQ(pairs, 169);
  Statistics small{Box{}, {{Reduction::kMax, {1}}}};
  expect_error(ErrorKind::kInternal, [&] { take_reduction_keys(std::vector<std::uint64_t>(2), small); }, {"size"});
}

TEST(Statistics, OthersAreRefused) {
  Statistics whole = paddle_o1().no_statistics({4, 3}, shard::whole(Shape{4, 3}));
  expect_error(ErrorKind::kInternal,
               [&] {
                 merge(whole, paddle_o2().no_statistics({32, 3}, shard::whole(Shape{32, 3})));
               },
               {"cannot be merged"});
  // Statistics of the first two columns are not enough to encode the third.
  const Statistics narrow = paddle_o1().no_statistics({4, 3}, {{0, 0}, {4, 2}});
  const State state(12);
  expect_error(ErrorKind::kInternal,
               [&] {
                 (void)encode_box(paddle_o1(), {"w", {4, 3}}, shard::whole(Shape{4, 3}), state.view(), narrow);
               },
               {"do not cover"});
}

TEST(Checks, OnlyF32IsCoded) {
  require_f32(paddle_o1(), "w/moment1_0", DType::kF32);
  expect_error(ErrorKind::kUsage, [] { require_f32(paddle_o1(), "w/moment1_0", DType::kBF16); },
               {"'w/moment1_0'", "BF16", "paddle-o1", "F32 only", "quant=off"});
}

TEST(Checks, UnusualMomentsAreNamedWithTheirPlace) {
  const Box box = {{10, 20}, {2, 3}};
  const auto refusal = [&](std::size_t at, float m, float v) {
    State state(std::vector<float>(6, 1.0F), std::vector<float>(6, 1.0F));
    state.m[at] = m;
    state.v[at] = v;
    return [=, &box] { refuse_unusual_moments(paddle_o1(), {"w", {64, 64}}, box, state.view()); };
  };
  refusal(0, 1, 0)();
  expect_error(ErrorKind::kState, refusal(5, kNan, 1), {"'w'", "m at [11, 22] is nan", "paddle-o1"});
  expect_error(ErrorKind::kState, refusal(1, -kInfinity, 1), {"m at [10, 21] is -inf"});
  expect_error(ErrorKind::kState, refusal(3, 1, kNan), {"v at [11, 20] is nan"});
  expect_error(ErrorKind::kState, refusal(3, 1, -1), {"v at [11, 20] is -1"});
  expect_error(ErrorKind::kState, refusal(3, 1, kInfinity), {"v at [11, 20] is inf"});
}

TEST(Checks, StoredTensorsHaveTheCodecsForm) {
  const Part scales = paddle_o1().parts({4, 3})[1];
  check_stored(paddle_o1(), "w/moment1_0@scales", scales, DType::kF32, {3});
  expect_error(ErrorKind::kFormat, [&] { check_stored(paddle_o1(), "w/s", scales, DType::kF32, {4}); },
               {"'w/s'", "F32 [4]", "paddle-o1 stores F32 [3]"});
  expect_error(ErrorKind::kFormat, [&] { check_stored(paddle_o1(), "w/s", scales, DType::kF16, {3}); },
               {"'w/s'", "F16 [3]"});
}

TEST(Checks, ScalesAreFinite) {
  const auto parts = paddle_o1().parts({4, 3});
  check_scales(paddle_o1(), "w/s", parts[1], bytes_of_floats({1, 2, 3}));
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    expect_error(ErrorKind::kFormat,
                 [&] {
                   check_scales(paddle_o1(), "w/s", parts[1], bytes_of_floats({1, 2, bad}));
                 },
                 {"'w/s'", "paddle-o1", std::isnan(bad) ? "nan" : "inf"});
  }
  check_scales(paddle_o1(), "w/m", parts[0], bytes_of_floats({kNan}));  // codes may be any bytes
}

TEST(Checks, WrongCallsAreBugs) {
  const State state(12);
  Statistics statistics = paddle_o1().no_statistics({4, 3}, shard::whole(Shape{4, 3}));
  const auto measure = [&](const Box& box, std::size_t elements) {
    return [&, box, elements] {
      const State piece(elements);
      paddle_o1().measure({"w", {4, 3}}, box, piece.view(), statistics);
    };
  };
  measure({{1, 1}, {3, 2}}, 6)();
  expect_error(ErrorKind::kInternal, measure({{1, 1}, {3, 2}}, 7), {"'w'", "7 and 7 values", "has 6"});
  expect_error(ErrorKind::kInternal, measure({{1, 1}, {3, 3}}, 9), {"outside"});
  expect_error(ErrorKind::kInternal, measure({{1, 1}, {0, 2}}, 0), {"empty"});
  expect_error(ErrorKind::kInternal, measure({{1}, {3}}, 3), {"outside"});
  expect_error(ErrorKind::kInternal, [] { (void)paddle_o1().parts({2, 3, 4}); }, {"[2, 3, 4]", "not coded"});
  Encoded encoded = encode_whole(paddle_o1(), {"w", {4, 3}}, state.view());
  encoded[1].pop_back();
  expect_error(ErrorKind::kInternal,
               [&] {
                 decoded(paddle_o1(), {"w", {4, 3}}, encoded, Division::kTrue);
               },
               {"part 1 of 'w'", "11 bytes instead of 12"});
  encoded.pop_back();
  expect_error(ErrorKind::kInternal,
               [&] {
                 decoded(paddle_o1(), {"w", {4, 3}}, encoded, Division::kTrue);
               },
               {"4 parts instead of 5"});
}

}  // namespace
}  // namespace cairn::quant::test
