// Blocks of q8 and q4: coding decoded values again, zeros, extreme values, the bytes.
#include <bit>
#include <cmath>

#include "golden_file.hpp"
#include "quant/own_block.hpp"
#include "random_blocks.hpp"

namespace cairn::quant::own {
namespace {

using test::kKinds;
using test::kLeast;
using test::kMost;
using test::Maker;
using test::random_block;

struct OwnBlock : testing::TestWithParam<const Format*> {
  const Format& format = *GetParam();

  Block encoded(const Values& values) const {
    Block block;
    EXPECT_TRUE(encode_block(format, values, block));
    return block;
  }
  Values decoded(const Block& block) const {
    Values values;
    EXPECT_TRUE(decode_block(format, block, values));
    return values;
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, OwnBlock, testing::Values(&kQ8, &kQ4),
                         [](const auto& test) { return std::string(test.param->name); });

TEST_P(OwnBlock, EncodingWhatWasDecodedChangesNothing) {
  Maker make;
  int compared = 0;
  for (int i = 0; i < 12'000; ++i) {
    const Values values = random_block(make, i % kKinds);
    const Block block = encoded(values);
    const Values back = decoded(block);
    for (std::size_t e = 0; e < kBlockElements; ++e) {
      ASSERT_EQ(back.v[e] > 0, values.v[e] > 0) << "block " << i << ", v " << values.v[e];
      ASSERT_TRUE(std::isfinite(back.v[e]) && std::isfinite(back.m[e])) << "block " << i;
      ASSERT_TRUE(values.m[e] != 0 || back.m[e] == 0) << "block " << i;
      ASSERT_GE(values.m[e] * 0x1p-20F * back.m[e], 0) << "block " << i << ": another sign";
    }
    ASSERT_EQ(encoded(back), block) << "block " << i << " of kind " << i % kKinds;
    std::array<std::byte, 512> bytes{};
    format.pack(block, bytes.data());
    Block unpacked;
    ASSERT_TRUE(format.unpack(bytes.data(), unpacked));
    ASSERT_EQ(unpacked, block);
    ++compared;
  }
  EXPECT_EQ(compared, 12'000);
}

TEST_P(OwnBlock, ZerosStayZerosBesideOthers) {
  Values values{};
  for (std::size_t i = 0; i < kBlockElements; i += 3) {
    values.v[i] = 1e-6F;
    values.m[i] = 1e-3F;
  }
  values.v[1] = -0.0F;
  values.m[3] = 0;
  const Values back = decoded(encoded(values));
  for (std::size_t i = 0; i < kBlockElements; ++i) {
    EXPECT_EQ(back.v[i] == 0, values.v[i] == 0) << i;
    EXPECT_FALSE(std::signbit(back.v[i])) << i;
    EXPECT_TRUE(values.m[i] != 0 || back.m[i] == 0) << i;
    EXPECT_NEAR(back.v[i], values.v[i], 1e-6F * (format.bits == 8 ? 0.01 : 0.2)) << i;
  }
  const Values nothing = decoded(encoded(Values{}));
  for (std::size_t i = 0; i < kBlockElements; ++i) EXPECT_TRUE(nothing.m[i] == 0 && nothing.v[i] == 0);
}

TEST_P(OwnBlock, WhereVIsZeroTheUpdateIsKept) {
  // If v is zero, Adam steps by m / epsilon; epsilon is 1e-8.
  Values values{};
  for (std::size_t i = 0; i < kBlockElements; ++i) {
    values.v[i] = i % 2 == 0 ? 1e-8F : 0.0F;
    values.m[i] = (i % 2 == 0 ? 1e-4F : 1e-8F) * static_cast<float>(i % 7) / 6;
  }
  const Values back = decoded(encoded(values));
  for (std::size_t i = 1; i < kBlockElements; i += 2) {
    EXPECT_NEAR(back.m[i] / 1e-8, values.m[i] / 1e-8, format.bits == 8 ? 0.005 : 0.1) << i;
  }
}

TEST_P(OwnBlock, DenormalAndHugeVComeBack) {
  for (const double log : {-149.0, -146.3, -140.0, -130.5, -126.0, 100.0, 110.0, 127.0, 127.99}) {
    Values values{};
    for (std::size_t i = 0; i < kBlockElements; ++i) values.v[i] = Maker::two_to(log);
    const Values back = decoded(encoded(values));
    // Near its smallest number, F32 has only 1 to 3 digits; above 2^107 the lowest level stays the same, and levels are
    // far apart.
    const double tolerance = (log < -140 ? 0.75 : 0.01) + (format.bits == 8 ? 0.05 : 0.7);
    EXPECT_NEAR(std::log2(back.v[5]), std::log2(values.v[5]), tolerance) << log;
  }
}

TEST_P(OwnBlock, EveryUpdateIsWithinOneLevel) {
  // v is constant, so u has many levels; at the ends they are twice as far apart as on average.
  const double level = 2 * 2.07 / (format.levels[0].u / 2);
  Maker make;
  for (int i = 0; i < 1000; ++i) {
    const Values values = make.block([] { return 0; }, [&] { return make.in(-8, 1); }, 0);
    const Values back = decoded(encoded(values));
    for (std::size_t e = 0; e < kBlockElements; ++e) {
      const float u = values.m[e] / std::sqrt(values.v[e]);
      ASSERT_NEAR(back.m[e] / std::sqrt(back.v[e]), u, level) << i;
    }
  }
}

TEST_P(OwnBlock, WhatNoBlockHoldsIsRefused) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<float, float>> pairs = {{nan, 1},    {infinity, 1}, {-infinity, 1}, {1, nan},
                                                      {1, -1},     {1, infinity}, {0, infinity},  {0, -kLeast},
                                                      {1, 1e-26F}, {1e30F, 1},    {kMost, kMost}, {16384, 0}};
  for (const auto& [m, v] : pairs) {
    Values values{};
    values.m[77] = m;
    values.v[77] = v;
    Block block;
    EXPECT_FALSE(encode_block(format, values, block)) << m << ", " << v;
    EXPECT_TRUE(is_refused(m, v));
  }
  EXPECT_FALSE(is_refused(0x1p39F, 1));
  EXPECT_FALSE(is_refused(4096, 0));
  EXPECT_FALSE(is_refused(0, kMost));
  EXPECT_FALSE(is_refused(0, -0.0F));
}

TEST_P(OwnBlock, EveryWordDecodesToFiniteValues) {
  Maker make;
  for (int i = 0; i < 20'000; ++i) {
    Block block;
    block.word = static_cast<std::uint32_t>(make.random());
    const Levels levels = format.levels[scales_of(block.word).range];
    const std::uint32_t codes = std::uint32_t{levels.u} * levels.v;
    for (auto& code : block.codes) code = static_cast<std::uint32_t>(make.random()) % codes;
    const Values values = decoded(block);
    for (std::size_t e = 0; e < kBlockElements; ++e) {
      ASSERT_TRUE(std::isfinite(values.m[e]) && std::isfinite(values.v[e]) && values.v[e] >= 0);
      const bool is_zero = scales_of(block.word).has_zeros && block.codes[e] % levels.v == 0;
      ASSERT_EQ(values.v[e] == 0, is_zero);
    }
    block.codes[make.random() % kBlockElements] = codes;
    Values none;
    ASSERT_FALSE(decode_block(format, block, none)) << "a code that is not in use";
  }
}

TEST_P(OwnBlock, TheLevelsFitTheCodes) {
  for (std::uint32_t range = 0; range < kRangeCodes; ++range) {
    const Levels levels = format.levels[range];
    EXPECT_EQ(levels.u % 2, 1);
    EXPECT_GE(levels.u, 5);
    EXPECT_GE(levels.v, 4);
    EXPECT_LE(std::uint32_t{levels.u} * levels.v, format.codes);
    EXPECT_TRUE(range == 0 || range_of(range) > range_of(range - 1));
  }
  EXPECT_GE(range_of(kRangeCodes - 1), 277 << 20) << "from the smallest to the largest float";
}

TEST(OwnPack, EveryPairHasItsBits) {
  for (const Format* format : {&kQ8, &kQ4}) {
    std::vector<std::byte> none(format->block_bytes);
    format->pack(Block{}, none.data());
    for (std::size_t i = 0; i < kBlockElements; ++i) {
      Block block;
      block.codes[i] = format->codes - 1;
      std::vector<std::byte> bytes(format->block_bytes);
      format->pack(block, bytes.data());
      EXPECT_NE(bytes, none);
      Block back;
      ASSERT_TRUE(format->unpack(bytes.data(), back));
      EXPECT_EQ(back, block) << i;
    }
  }
  for (const Format* format : {&kQ8, &kQ4}) {
    const std::vector<std::byte> bytes(format->block_bytes, std::byte{0xff});
    Block block;
    EXPECT_FALSE(format->unpack(bytes.data(), block)) << "more than four pairs' upper parts";
  }
}

}  // namespace
}  // namespace cairn::quant::own
