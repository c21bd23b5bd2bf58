// A conversion to codes writes the same bytes as a save with the same codec, for any number of ranks, wherever
// windows cut blocks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cairn/error.hpp"
#include "conversion/convert.hpp"
#include "directory_names.hpp"
#include "quantised_state.hpp"
#include "simulated_save.hpp"
#include "test_name.hpp"

namespace cairn::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

enum class Content { kUsual, kSpoilt, kCalm, kCalmAndSpoilt };

void save_moments(const std::filesystem::path& root, Content content = Content::kUsual) {
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    MomentRank state(Cut::kRows, communicator.rank(), 2);
    state.fill(1);
    if (content == Content::kCalm || content == Content::kCalmAndSpoilt) calm(state);
    if (content == Content::kSpoilt || content == Content::kCalmAndSpoilt) spoil_square(state, communicator.rank());
    io::WindowStore store;
    checkpoint::Saver saver(communicator, small_options(), store);
    saver.save(root / "checkpoint-1", 1, state.sources(), {});
  });
}

conversion::ConvertOptions options_for(const std::string& quant) {
  conversion::ConvertOptions options;
  options.write = small_options();
  options.read = {"posix", 64 << 10, {}, 0};
  options.quant = quant;
  return options;
}

/// The report of rank 0, or its failure.
struct Converted {
  Report report;
  std::string failure;
};

Converted convert(const std::filesystem::path& from, const std::filesystem::path& to,
                  const conversion::ConvertOptions& options, int ranks) {
  Converted converted;
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    try {
      auto result = conversion::convert(communicator, from, to, options);
      if (communicator.rank() == 0) converted.report = std::move(result.report);
    } catch (const Error& error) {
      if (communicator.rank() == 0) converted.failure = error.what();
    }
  });
  return converted;
}

class QuantisedConvert : public testing::TestWithParam<const char*> {
 protected:
  const quant::Codec& codec = quant::find_codec(GetParam());
  TempDir root;
};

TEST_P(QuantisedConvert, GivesTheCodesOfTheWhole) {
  save_moments(root.path());
  for (const int ranks : {1, 2, 3, 5}) {
    const auto to = root / ("by" + std::to_string(ranks));
    EXPECT_EQ(convert(root / "checkpoint-1", to, options_for(GetParam()), ranks).failure, "");
    expect_codes_of_the_whole(to, codec);
  }
}

TEST_P(QuantisedConvert, ThereAndBackAndThereAgain) {
  save_moments(root.path());
  const bool is_stable = codec.traits().cut == quant::Cut::kWholeBlocks;
  EXPECT_EQ(convert(root / "checkpoint-1", root / "coded", options_for(GetParam()), 3).failure, "");
  EXPECT_EQ(convert(root / "coded", root / "kept", options_for("keep"), 2).failure, "");
  expect_codes_of_the_whole(root / "kept", codec);
  EXPECT_EQ(convert(root / "coded", root / "plain", options_for("off"), 2).failure, "");
  EXPECT_TRUE(opening::open_here(root / "plain").quantised.empty());
  EXPECT_EQ(convert(root / "plain", root / "again", options_for(GetParam()), 4).failure, "");
  if (is_stable) {
    expect_codes_of_the_whole(root / "again", codec);
  } else {
    EXPECT_FALSE(opening::open_here(root / "again").quantised.empty());
  }
}

TEST_P(QuantisedConvert, ReportsTheErrorsThatASaveReports) {
  save_moments(root.path());
  conversion::ConvertOptions options = options_for(GetParam());
  options.write.quantisation.report = true;
  const Converted by_three = convert(root / "checkpoint-1", root / "coded", options, 3);
  EXPECT_EQ(by_three.failure, "");
  Report saved;
  comm::run_simulated(1, [&](comm::Communicator& communicator) {
    MomentRank state(Cut::kRows, 0, 1);
    state.fill(1);
    Options save_options = small_options();
    save_options.quantisation.codecs["optimizer"] = GetParam();
    save_options.quantisation.report = true;
    io::WindowStore store;
    saved = checkpoint::Saver(communicator, save_options, store).save(root / "saved", 1, state.sources(), {});
  });
  ASSERT_EQ(by_three.report.coding_errors.size(), saved.coding_errors.size());
  for (std::size_t i = 0; i < saved.coding_errors.size(); ++i) {
    const CodingError& a = by_three.report.coding_errors[i];
    const CodingError& b = saved.coding_errors[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.elements, b.elements) << a.name;
    EXPECT_NEAR(a.update_rms, b.update_rms, 1e-9 * b.update_rms) << a.name;
    EXPECT_NEAR(a.root_rms, b.root_rms, 1e-9 * b.root_rms) << a.name;
    EXPECT_EQ(a.first_max, b.first_max) << a.name;
    EXPECT_EQ(a.second_max, b.second_max) << a.name;
  }
}

TEST_P(QuantisedConvert, ATensorBeyondTheFiguresIsNamedUnasked) {
  const bool is_own = codec.traits().cut == quant::Cut::kWholeBlocks;
  save_moments(root.path(), is_own ? Content::kSpoilt : Content::kCalmAndSpoilt);
  for (const int ranks : {1, 3}) {
    const auto to = root / ("by" + std::to_string(ranks));
    const Converted coded = convert(root / "checkpoint-1", to, options_for(GetParam()), ranks);
    EXPECT_EQ(coded.failure, "");
    ASSERT_EQ(coded.report.beyond_figures.size(), 1U);
    ASSERT_EQ(coded.report.warnings.size(), 1U);
    EXPECT_TRUE(coded.report.coding_errors.empty());
    EXPECT_EQ(coded.report.beyond_figures[0].name, "square/moment1_0");
    EXPECT_LT(coded.report.beyond_figures[0].elements_measured, 128U * 128U / 4);
    EXPECT_THAT(coded.report.warnings[0], HasSubstr("'square/moment1_0'"));
  }
}

TEST_P(QuantisedConvert, ATensorWithinTheFiguresIsNotNamed) {
  const bool is_own = codec.traits().cut == quant::Cut::kWholeBlocks;
  save_moments(root.path(), is_own ? Content::kUsual : Content::kCalm);
  const Converted coded = convert(root / "checkpoint-1", root / "coded", options_for(GetParam()), 3);
  EXPECT_EQ(coded.failure, "");
  EXPECT_TRUE(coded.report.beyond_figures.empty());
  EXPECT_EQ(coded.report.warnings, std::vector<std::string>());
}

TEST_P(QuantisedConvert, TooLargeAnErrorLeavesNothing) {
  save_moments(root.path());
  conversion::ConvertOptions options = options_for(GetParam());
  options.write.quantisation.max_update_error = 0.0001;
  EXPECT_THAT(convert(root / "checkpoint-1", root / "coded", options, 2).failure,
              AllOf(HasSubstr(GetParam()), HasSubstr("0.01 %")));
  EXPECT_FALSE(std::filesystem::exists(root / "coded"));
  EXPECT_EQ(names_beginning_with(root.path(), "coded"), std::vector<std::string>{});
}

INSTANTIATE_TEST_SUITE_P(Codecs, QuantisedConvert, testing::Values("q8", "q4", "paddle-o1", "paddle-o2"),
                         kNamedByParameter);

TEST(QuantisedConvertOptions, MasterWeightsCanBeElided) {
  const TempDir root;
  save_moments(root.path());
  conversion::ConvertOptions options = options_for("q8");
  options.write.quantisation.remove_master_weight = true;
  EXPECT_EQ(convert(root / "checkpoint-1", root / "small", options, 2).failure, "");
  const auto small = opening::open_here(root / "small");
  for (const auto& tensor : small.stored.tensors) EXPECT_NE(tensor.section, "master_weights");
  EXPECT_EQ(small.manifest->extra.at("rebuilt"),
            base::Json::parse(R"({"master_weights": {"from": "model", "dtype": "F32"}})", "expected"));
  EXPECT_EQ(stored_bytes(small, "model", "square"), moment_bytes({"model", "square", DType::kBF16, {128, 128}}, 1));
}

TEST(QuantisedConvertOptions, ShardsHoldNoCodes) {
  const TempDir root;
  save_moments(root.path());
  conversion::ConvertOptions options = options_for("q8");
  options.to = "shards";
  options.layout = "fsdp=2";
  EXPECT_THAT(convert(root / "checkpoint-1", root / "coded", options, 2).failure, HasSubstr("shards hold no codes"));
}

}  // namespace
}  // namespace cairn::test
