// Blocks of q8 and q4 over every exponent of F32: the largest v and the largest |m| of a block come back within a step,
// and decoded values are coded as before.
//
// A step of v is the factor between the two highest levels of v in the coded block;
// a step of m is the distance between the two highest levels of u, times the root of the largest v.
#include <gtest/gtest.h>

#include <cmath>

#include "quant/own_block.hpp"
#include "random_blocks.hpp"

namespace cairn::quant::own {
namespace {

using test::kLeast;
using test::kMost;
using test::Maker;

struct Largest {
  double m = 0;
  double v = 0;
};

Largest largest_of(const Values& values) {
  Largest largest;
  for (std::size_t i = 0; i < kBlockElements; ++i) {
    largest.m = std::max(largest.m, std::abs(static_cast<double>(values.m[i])));
    largest.v = std::max(largest.v, static_cast<double>(values.v[i]));
  }
  return largest;
}

struct OwnRange : testing::TestWithParam<const Format*> {
  const Format& format = *GetParam();
  Maker make;

  void check(const Values& values) const {
    Block block;
    Values back;
    ASSERT_TRUE(encode_block(format, values, block));
    ASSERT_TRUE(decode_block(format, block, back));
    Block again;
    ASSERT_TRUE(encode_block(format, back, again));
    ASSERT_EQ(again, block) << "what was decoded is coded otherwise";

    const Largest given = largest_of(values);
    const Largest found = largest_of(back);
    for (std::size_t i = 0; i < kBlockElements; ++i) ASSERT_EQ(back.v[i] > 0, values.v[i] > 0) << i;
    const Grid grid = grid_of(format, block.word);
    const double below = 1 - 2.0 / grid.v_steps;  // the second highest level
    const double step = (1 - below * std::sqrt(2 / (3 - below * below))) / 2 * grid.range / kOctave;
    const double v_step = std::exp2(step * (1 + 0x1p-7) + 2.0 * kSlack / kOctave);  // the margins of hold()
    const double v_unit = kLeast;                                                   // denormal v are multiples of this
    ASSERT_LE(found.v, given.v * v_step + v_unit) << "a step is a factor of " << v_step;
    const double down = given.v < 0x1p-126 ? std::max(v_step, 2.0) : v_step;  // denormal: a factor of two is allowed
    ASSERT_GE(found.v, given.v / down - v_unit) << "a step is a factor of " << v_step;

    const double second = 1 - 1.0 / grid.u_half;
    const double u_step = grid.u_scale * (1 - second / std::sqrt(2 - second * second));
    const double root = std::max(std::sqrt(found.v), grid.zero != 0 ? double{kZeroReference} : 0);
    const double m_step = std::max(u_step, 0x1p-24) * root;
    ASSERT_LE(found.m, given.m * std::sqrt(v_step) * 1.0001 + m_step);
    ASSERT_GE(found.m, given.m / std::sqrt(down) / 1.0001 - m_step);
  }

  /// 128 pairs with log2(v) uniform in [low, low + width], up to the largest F32; v is 0 once in `zero_once_in` pairs.
  Values window(double low, double width, int zero_once_in = 0) {
    const auto log_v = [&] { return std::min(low + make.in(0, width), 128.0); };
    return make.block(
        log_v, [&] { return make.in(-6, 1); }, zero_once_in);
  }

  void check_window(double low, double width, int zero_once_in = 0) {
    ASSERT_NO_FATAL_FAILURE(check(window(low, width, zero_once_in)))
        << format.name << ": v from 2^" << low << " to 2^" << low + width << ", zero once in " << zero_once_in;
  }
};

INSTANTIATE_TEST_SUITE_P(Formats, OwnRange, testing::Values(&kQ8, &kQ4),
                         [](const auto& test) { return std::string(test.param->name); });

TEST_P(OwnRange, WindowsFromEveryExponent) {
  int windows = 0;
  for (int low = -149; low < 128; ++low) {
    for (const double width :
         {0.0, 0.01, 0.1, 0.5, 1.0, 1.5, 2.5, 5.0, 10.0, 17.0, 22.0, 25.0, 40.0, 80.0, 120.0, 277.0}) {
      for (const int zero_once_in : {0, 0, 0, 3, 100}) {
        ASSERT_NO_FATAL_FAILURE(check_window(low + make.in(0, 1), width, zero_once_in));
        ++windows;
      }
    }
  }
  EXPECT_EQ(windows, 277 * 16 * 5);
}

TEST_P(OwnRange, FromTheLeastFloatToUsualValues) {
  for (int i = 0; i < 2000; ++i) {
    const double least = std::log2(1.4e-44) - (i % 2 == 0 ? 0 : 4);
    ASSERT_NO_FATAL_FAILURE(check_window(least, std::log2(1e-8) - least, i % 4 == 0 ? 20 : 0));
    ASSERT_NO_FATAL_FAILURE(check_window(make.in(-149, -126), make.in(0, 149)));
  }
}

TEST_P(OwnRange, DeadUnitsBesideLivingOnes) {
  for (int i = 0; i < 4000; ++i) {
    const double living = make.in(-60, -20);
    const double dead = make.in(-149, -120);
    const int dead_once_in = 1 + static_cast<int>(make.random() % 130);
    const auto log_v = [&] { return make.once_in(dead_once_in) ? dead + make.in(-1, 1) : living + make.in(-4, 4); };
    const Values values =
        make.block([&] { return std::max(log_v(), -149.0); }, [&] { return make.in(-20, 2); }, i % 3 == 0 ? 10 : 0);
    ASSERT_NO_FATAL_FAILURE(check(values)) << "block " << i << ": dead 2^" << dead << ", living 2^" << living;
  }
}

TEST_P(OwnRange, BlocksOfKindsThatUpsetTheScales) {
  for (int i = 0; i < 6000; ++i) {
    ASSERT_NO_FATAL_FAILURE(check(test::random_block(make, i % test::kKinds))) << "kind " << i % test::kKinds;
  }
}

TEST_P(OwnRange, OneElementAmongZerosAndAllTheSame) {
  for (int low = -149; low < 128; ++low) {
    Values all;
    all.v.fill(Maker::two_to(low + make.in(0, 1)));
    all.m.fill(make.m_for(all.v[0], make.in(-3, 1)));
    ASSERT_NO_FATAL_FAILURE(check(all)) << "all the same, 2^" << low;
    Values one{};
    one.v[17] = all.v[0];
    one.m[17] = all.m[0];
    ASSERT_NO_FATAL_FAILURE(check(one)) << "one, 2^" << low;
    Values two = all;  // all the same, except one v, which is the smallest
    two.v[17] = kLeast;
    two.m[17] = 0;
    ASSERT_NO_FATAL_FAILURE(check(two)) << "beside the least, 2^" << low;
    two.v[17] = kMost;
    ASSERT_NO_FATAL_FAILURE(check(two)) << "beside the largest, 2^" << low;
  }
}

TEST_P(OwnRange, EveryPairOfSmallDenormals) {
  // Values for which F32 has one to seven bits: every lowest and highest v, alone and with values in between.
  for (int low = 1; low < 80; ++low) {
    for (int high = low; high < 80; ++high) {
      Values values;
      for (std::size_t i = 0; i < kBlockElements; ++i) {
        const int between = low + static_cast<int>(make.random() % static_cast<unsigned>(high - low + 1));
        values.v[i] = kLeast * static_cast<float>(i == 0 ? low : i == 1 || high % 3 == 0 ? high : between);
        values.m[i] = make.m_for(values.v[i], make.in(-3, 1));
      }
      ASSERT_NO_FATAL_FAILURE(check(values)) << low << " to " << high << " times 2^-149";
    }
  }
}

}  // namespace
}  // namespace cairn::quant::own
