// Reported errors of codes: sums compared with a plain loop, and samples compared with all blocks.
#include "quant/errors.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "golden_file.hpp"
#include "quant/own_codec.hpp"
#include "quant/paddle_codec.hpp"
#include "random_blocks.hpp"
#include "shard/box_math.hpp"

namespace cairn::quant::test {
namespace {

using own::test::Maker;

TEST(ErrorSums, AreThoseOfAPlainLoop) {
  Maker make;
  for (const std::size_t count : {1U, 3U, 127U, 128U, 129U, 1000U}) {
    State given(count);
    State found(count);
    double error = 0;
    double size = 0;
    double error_max = 0;
    double root_error = 0;
    double root_max = 0;
    double roots = 0;
    double second_max = 0;
    for (std::size_t i = 0; i < count; ++i) {
      given.v[i] = i % 5 == 4 ? 0 : Maker::two_to(make.in(-149, 20));
      found.v[i] = given.v[i] * static_cast<float>(make.in(0.5, 1.5));
      given.m[i] = make.m_for(given.v[i], make.in(-6, 1));
      found.m[i] = given.m[i] * static_cast<float>(make.in(0.5, 1.5));
      const double root = std::sqrt(static_cast<double>(given.v[i]));
      const double found_root = std::sqrt(static_cast<double>(found.v[i]));
      const double update = given.m[i] / (root + 1e-8);
      const double off = std::abs(found.m[i] / (found_root + 1e-8) - update);
      error += off * off;
      size += update * update;
      error_max = std::max(error_max, off);
      second_max = std::max(second_max, std::abs(static_cast<double>(found.v[i]) - given.v[i]));
      if (given.v[i] == 0) continue;
      root_error += std::pow(found_root / root - 1, 2);
      root_max = std::max(root_max, std::abs(found_root / root - 1));
      roots += 1;
    }
    ErrorSums sums;
    sums.add(given.view(), found.view());
    EXPECT_EQ(sums.elements(), static_cast<double>(count));
    EXPECT_DOUBLE_EQ(sums.root_max(), root_max);
    EXPECT_EQ(sums.second_max(), second_max);
    EXPECT_NEAR(sums.update_rms(), std::sqrt(error / size), 1e-12);
    EXPECT_NEAR(sums.update_max() * std::sqrt(size / static_cast<double>(count)), error_max, 1e-12 * error_max);
    EXPECT_NEAR(sums.root_rms(), std::sqrt(root_error / roots), 1e-12);
    if (count > 100) {
      EXPECT_GT(sums.root_rms(), 0.05) << "compared nothing?";
    }
    sums.weigh(3);
    EXPECT_EQ(sums.elements(), 3 * static_cast<double>(count));
    EXPECT_NEAR(sums.update_rms(), std::sqrt(error / size), 1e-12);
  }
  ErrorSums none;
  none.add({}, {});
  EXPECT_EQ(none.elements(), 0);
  EXPECT_EQ(none.update_rms(), 0);
}

struct Sampled : testing::TestWithParam<const Codec*> {
  static constexpr std::uint64_t kRows = 64;
  static constexpr std::uint64_t kColumns = 128 * 64;

  const Codec& codec = *GetParam();
  Maker make;
  const Source source = {"w", {kRows, kColumns}};
  const Box whole = shard::whole(codec.view(source.shape));

  /// A state with sqrt(v) mostly far above 1e-8, except in one of `hard_once_in` blocks, where v spans 120 octaves.
  State state(std::uint64_t hard_once_in) {
    std::normal_distribution<double> gauss;
    State state(kRows * kColumns);
    for (std::size_t i = 0; i < state.v.size(); ++i) {
      const bool is_hard = hard_once_in != 0 && (i / 128 * 0x9E3779B97F4A7C15U >> 32) % hard_once_in == 0;
      const double log = is_hard ? make.in(-145, -25) : -30 + 1.4427 * gauss(make.random);
      state.v[i] = Maker::two_to(log);
      state.m[i] = static_cast<float>(gauss(make.random) * std::sqrt(static_cast<double>(state.v[i])));
    }
    return state;
  }

  /// Exact and sampled errors, merged from `pieces` parts of the rows, as from that many ranks.
  std::pair<TensorErrors, TensorErrors> errors_of(const State& state, std::uint64_t pieces) {
    std::pair<TensorErrors, TensorErrors> all;
    const std::uint64_t rows = kRows / pieces;
    for (std::uint64_t row = 0; row < kRows; row += rows) {
      const Box box{{row, 0}, {rows, kColumns}};
      const ConstMoments moments = {std::span(state.m).subspan(row * kColumns, rows * kColumns),
                                    std::span(state.v).subspan(row * kColumns, rows * kColumns)};
      Encoded parts = encode_box(codec, source, box, moments, {});
      const std::vector<std::span<std::byte>> spans(parts.begin(), parts.end());
      std::pair<TensorErrors, TensorErrors> mine;
      add_errors({codec, source, box, moments, spans}, {}, mine.first);
      sample_errors({codec, source, box, moments, spans}, {}, mine.second);
      all.first.merge(mine.first);
      all.second.merge(mine.second);
    }
    return all;
  }
};

INSTANTIATE_TEST_SUITE_P(Codecs, Sampled, testing::Values(&own_q8(), &own_q4()),
                         [](const auto& test) { return test.param->traits().name; });

TEST_P(Sampled, SaysWhatAllBlocksSay) {
  ASSERT_TRUE(can_be_sampled(codec));
  for (const std::uint64_t hard_once_in : {0U, 100U, 10U, 1U}) {
    const State given = state(hard_once_in);
    for (const std::uint64_t pieces : {1U, 4U}) {
      const auto [exact, sample] = errors_of(given, pieces);
      EXPECT_EQ(exact.elements_measured(), given.m.size());
      EXPECT_LE(sample.elements_measured(), given.m.size() / 191 + 10 * 128 * pieces);
      const ErrorSums all = exact.estimate();
      const ErrorSums some = sample.estimate();
      EXPECT_NEAR(some.elements(), all.elements(), 1) << "every kind stands for its share";
      EXPECT_NEAR(some.update_rms(), all.update_rms(), 0.35 * all.update_rms()) << hard_once_in;
      EXPECT_NEAR(some.root_rms(), all.root_rms(), 0.35 * all.root_rms()) << hard_once_in;
      if (hard_once_in > 1) continue;  // too close to the figures
      EXPECT_EQ(exact.exceed_figures(codec.traits()), hard_once_in == 1);
      EXPECT_EQ(sample.exceed_figures(codec.traits()), hard_once_in == 1);
    }
  }
}

TEST_P(Sampled, APieceOfABlockOrTwoIsMeasuredWhole) {
  State given = state(0);
  const Box box{{1, 128}, {1, 128}};
  const ConstMoments moments = {std::span(given.m).first(128), std::span(given.v).first(128)};
  Encoded parts = encode_box(codec, source, box, moments, {});
  const std::vector<std::span<std::byte>> spans(parts.begin(), parts.end());
  TensorErrors exact;
  TensorErrors sample;
  TensorErrors run;
  add_errors({codec, source, box, moments, spans}, {}, exact);
  sample_errors({codec, source, box, moments, spans}, {}, sample);
  add_run({codec, source, box, moments, spans}, 0, run);
  for (const TensorErrors& errors : {sample, run}) {
    EXPECT_EQ(errors.elements_measured(), 128U);
    EXPECT_EQ(errors.estimate().update_rms(), exact.estimate().update_rms());
    EXPECT_EQ(errors.estimate().root_rms(), exact.estimate().root_rms());
  }
}

TEST(TensorErrors, PaddlesCodecsPublishNoFigures) {
  EXPECT_FALSE(can_be_sampled(paddle_o1()));
  EXPECT_FALSE(can_be_sampled(paddle_o2()));
  TensorErrors errors;
  errors.add_all({std::vector<float>{1}, std::vector<float>{1}}, {std::vector<float>{9}, std::vector<float>{9}});
  EXPECT_FALSE(errors.exceed_figures(paddle_o1().traits()));
  EXPECT_TRUE(errors.exceed_figures(own_q4().traits()));
}

}  // namespace
}  // namespace cairn::quant::test
