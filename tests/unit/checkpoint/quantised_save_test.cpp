// For any distribution of boxes, a quantised save writes the same bytes as coding whole tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <mutex>

#include "cairn/error.hpp"
#include "directory_names.hpp"
#include "quantised_state.hpp"
#include "simulated_save.hpp"
#include "test_name.hpp"

namespace cairn::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Options quantised(const std::string& codec) {
  Options options = small_options();
  options.quantisation.codecs["optimizer"] = codec;
  return options;
}

struct Saved {
  std::vector<Report> reports;
  std::string failure;  ///< common to all ranks, or empty
};

/// Saves on several ranks; `spoil` may change a rank's sources and memory before the save.
template <class Spoil>
Saved save_with(const std::filesystem::path& root, const Options& options, Cut cut, int ranks, Spoil spoil) {
  Saved saved;
  std::mutex mutex;
  comm::run_simulated(ranks, [&](comm::Communicator& communicator) {
    MomentRank state(cut, communicator.rank(), ranks);
    state.fill(1);
    auto sources = state.sources();
    spoil(communicator.rank(), sources, state);
    io::WindowStore store;
    try {
      checkpoint::Saver saver(communicator, options, store);
      Report report = saver.save(root / "checkpoint-1", 1, sources, {});
      const std::lock_guard lock(mutex);
      if (communicator.rank() == 0) saved.reports.push_back(std::move(report));
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      if (saved.failure.empty()) saved.failure = error.what();
      EXPECT_EQ(saved.failure, error.what());
    }
  });
  return saved;
}

Saved save(const std::filesystem::path& root, const Options& options, Cut cut, int ranks) {
  Saved saved = save_with(root, options, cut, ranks, [](int, std::vector<Source>&, MomentRank&) {});
  EXPECT_EQ(saved.failure, "");
  return saved;
}

class QuantisedSave : public testing::TestWithParam<const char*> {
 protected:
  const quant::Codec& codec = quant::find_codec(GetParam());
  TempDir root;
};

TEST_P(QuantisedSave, AnyCutGivesTheCodesOfTheWhole) {
  std::map<std::string, std::string> first;
  int ranks = 1;
  for (const Cut cut :
       {Cut::kOneRank, Cut::kReplicated, Cut::kRows, Cut::kColumns, Cut::kFlat, Cut::kGrid, Cut::kMixed}) {
    const std::filesystem::path at = root / std::to_string(ranks);
    std::filesystem::create_directory(at);
    save(at, quantised(GetParam()), cut, ranks);
    expect_codes_of_the_whole(at / "checkpoint-1", codec);
    const auto files = data_files(at / "checkpoint-1");
    if (first.empty()) first = files;
    EXPECT_EQ(files, first) << ranks;
    ++ranks;
  }
}

TEST_P(QuantisedSave, AnUnchangedStateReusesItsPlan) {
  comm::run_simulated(3, [&](comm::Communicator& communicator) {
    io::WindowStore store;
    checkpoint::Saver saver(communicator, quantised(GetParam()), store);
    MomentRank state(Cut::kColumns, communicator.rank(), 3);
    for (int version = 3; version >= 1; --version) {
      state.fill(version);
      const auto sources = state.sources();
      const auto step = static_cast<std::uint64_t>(4 - version);
      const Report report = saver.save(root::checkpoint_directory(root.path(), step), step, sources, {});
      EXPECT_EQ(report.plan_reused, version < 3);
    }
  });
  expect_codes_of_the_whole(root / "checkpoint-3", codec);
}

TEST_P(QuantisedSave, ReportsTheErrorOfEveryTensor) {
  Options options = quantised(GetParam());
  options.quantisation.report = true;
  const Saved by_three = save(root.path(), options, Cut::kColumns, 3);
  const auto& errors = by_three.reports.at(0).coding_errors;
  const auto opened = opening::open_here(root / "checkpoint-1");
  ASSERT_EQ(errors.size(), opened.quantised.size());
  std::size_t looked_at = 0;
  for (const CodingError& error : errors) {
    EXPECT_EQ(error.codec, GetParam());
    if (error.name != "square/moment1_0") continue;
    ++looked_at;
    EXPECT_EQ(error.elements, 128U * 128U);
    const bool is_8 = codec.traits().bits == 8;
    EXPECT_GT(error.update_rms, is_8 ? 0.002 : 0.02);
    EXPECT_GT(error.update_max, error.update_rms);
    EXPECT_GT(error.root_rms, is_8 ? 0.002 : 0.02);
    EXPECT_GT(error.root_max, error.root_rms);
    EXPECT_GT(error.first_max, 0);
    EXPECT_GT(error.second_max, 0);
    if (codec.traits().cut == quant::Cut::kWholeBlocks) {
      EXPECT_LT(error.update_rms, is_8 ? 0.005 : 0.07);
      EXPECT_LT(error.root_rms, is_8 ? 0.006 : 0.08);
    }
  }
  EXPECT_EQ(looked_at, 1U);
}

TEST_P(QuantisedSave, ATensorBeyondTheFiguresIsNamedUnasked) {
  const bool is_own = codec.traits().cut == quant::Cut::kWholeBlocks;
  for (const Cut cut : {Cut::kOneRank, Cut::kRows, Cut::kColumns}) {  // coded in place, and at a home
    const int ranks = cut == Cut::kOneRank ? 1 : 3;
    const std::filesystem::path at = root / std::to_string(static_cast<int>(cut));
    std::filesystem::create_directory(at);
    const Saved calmed = save_with(at, quantised(GetParam()), cut, ranks, [&](int, auto&, MomentRank& state) {
      if (!is_own) calm(state);
    });
    const Report& good = calmed.reports.at(0);
    EXPECT_TRUE(good.warnings.empty() && good.beyond_figures.empty() && good.coding_errors.empty());
    std::vector<CodingError> found;
    for (const bool is_asked : {false, true}) {
      Options options = quantised(GetParam());
      options.overwrite = true;
      options.quantisation.report = is_asked;
      const Saved saved = save_with(at, options, cut, ranks, [&](int rank, auto&, MomentRank& state) {
        if (!is_own) calm(state);
        spoil_square(state, rank);
      });
      ASSERT_EQ(saved.failure, "");
      const Report& report = saved.reports.at(0);
      ASSERT_EQ(report.beyond_figures.size(), 1U);
      ASSERT_EQ(report.warnings.size(), 1U);
      EXPECT_EQ(report.coding_errors.empty(), !is_asked);
      const CodingError& error = found.emplace_back(report.beyond_figures[0]);
      EXPECT_EQ(error.name, "square/moment1_0");
      EXPECT_EQ(error.section, "optimizer");
      EXPECT_EQ(error.elements, 128U * 128U);
      EXPECT_THAT(report.warnings[0], AllOf(HasSubstr("'square/moment1_0'"), HasSubstr(GetParam()),
                                            HasSubstr(is_own ? "a codec of more bits" : "take q8, unless"),
                                            HasSubstr("quant=off"), Not(HasSubstr("\n"))));
    }
    EXPECT_LE(found[0].elements_measured, found[0].elements / (is_own ? 8 : 4));
    EXPECT_GE(found[0].elements_measured, 4U * 128U);
    EXPECT_EQ(found[1].elements_measured, found[1].elements);
    EXPECT_NEAR(found[0].root_rms, found[1].root_rms, (is_own ? 0.3 : 0.6) * found[1].root_rms);
    EXPECT_GT(found[1].root_rms, 2 * codec.traits().figures.root_rms);
  }
}

TEST_P(QuantisedSave, TooLargeAnErrorIsRefusedAndNothingWritten) {
  Options options = quantised(GetParam());
  options.quantisation.max_update_error = 0.0001;
  const Saved saved = save_with(root.path(), options, Cut::kRows, 3, [](int, auto&, auto&) {});
  EXPECT_THAT(saved.failure, AllOf(HasSubstr(GetParam()), HasSubstr("0.01 %"), HasSubstr("/moment1_0'")));
  EXPECT_FALSE(std::filesystem::exists(root / "checkpoint-1"));
  EXPECT_EQ(names_beginning_with(root.path(), "checkpoint-"), std::vector<std::string>{});
}

TEST_P(QuantisedSave, ValuesThatCannotBeKeptAreRefusedByName) {
  for (const Cut cut : {Cut::kRows, Cut::kColumns}) {  // coded in place, and at a home
    const Saved saved = save_with(root.path(), quantised(GetParam()), cut, 3, [](int rank, auto&, MomentRank& state) {
      if (rank != 1) return;
      for (std::size_t i = 0; i < state.tensors().size(); ++i) {
        if (state.tensors()[i].name != "square/moment2_0") continue;
        const float bad = std::numeric_limits<float>::quiet_NaN();
        std::memcpy(state.memory(i).data(), &bad, sizeof bad);
      }
    });
    EXPECT_THAT(saved.failure, AllOf(HasSubstr("'square/moment1_0'"), HasSubstr("nan"), HasSubstr("quant=off")));
    EXPECT_EQ(names_beginning_with(root.path(), "checkpoint-"), std::vector<std::string>{});
  }
}

TEST_P(QuantisedSave, MomentsInAnotherDtypeAreRefused) {
  const Saved saved = save_with(root.path(), quantised(GetParam()), Cut::kRows, 2, [](int, auto& sources, auto&) {
    for (Source& source : sources) {
      if (source.name.starts_with("square/moment")) source.dtype = DType::kI32;
    }
  });
  EXPECT_THAT(saved.failure, AllOf(HasSubstr("'square/moment1_0'"), HasSubstr("I32"), HasSubstr("F32 only")));
}

TEST_P(QuantisedSave, AMomentWithoutTheOtherIsRefused) {
  const auto failure = [&](auto spoil) {
    return save_with(root.path(), quantised(GetParam()), Cut::kRows, 2, spoil).failure;
  };
  const auto named = [](std::vector<Source>& sources, std::string_view name) {
    return std::find_if(sources.begin(), sources.end(), [&](const Source& s) { return s.name == name; });
  };
  EXPECT_THAT(failure([&](int rank, auto& sources, auto&) {
                if (rank == 1) sources.erase(named(sources, "square/moment2_0"));
              }),
              AllOf(HasSubstr("'square/moment1_0'"), HasSubstr("does not hold 'square/moment2_0'")));
  EXPECT_THAT(failure([&](int, auto& sources, auto&) { sources.erase(named(sources, "square/moment1_0")); }),
              AllOf(HasSubstr("'square/moment2_0'"), HasSubstr("first moment")));
  EXPECT_THAT(failure([&](int, auto& sources, auto&) {
                named(sources, "square/moment2_0")->boxes = {{{0, 0}, {1, 1}}};
              }),
              AllOf(HasSubstr("'square/moment1_0'"), HasSubstr("other boxes of 'square/moment2_0'")));
}

INSTANTIATE_TEST_SUITE_P(Codecs, QuantisedSave, testing::Values("q8", "q4", "paddle-o1", "paddle-o2"),
                         kNamedByParameter);

TEST(QuantisedSaveOptions, UnknownCodecsAreRefused) {
  const TempDir root;
  const Saved saved = save_with(root.path(), quantised("q9"), Cut::kRows, 2, [](int, auto&, auto&) {});
  EXPECT_THAT(saved.failure, AllOf(HasSubstr("q9"), HasSubstr("paddle-o2")));
}

/// Warnings of two saves, by save. One of three ranks holds moments of shape `shape` in section "optimizer".
std::vector<std::vector<std::string>> warnings_of_two_saves(const Options& options, const std::string& name,
                                                            const std::vector<std::uint64_t>& shape) {
  const TempDir root;
  std::vector<std::vector<std::string>> warnings;
  comm::run_simulated(3, [&](comm::Communicator& communicator) {
    std::uint64_t elements = 1;
    for (const std::uint64_t size : shape) elements *= size;
    const std::vector<float> values(elements, 1);
    std::vector<Source> sources;
    for (const char* moment : {"exp_avg", "exp_avg_sq"}) {
      if (communicator.rank() != 1) break;
      Source& source = sources.emplace_back();
      source.section = "optimizer";
      source.name = name + moment;
      source.dtype = DType::kF32;
      source.shape = shape;
      source.boxes = {{std::vector<std::uint64_t>(shape.size(), 0), shape}};
      source.data = values.data();
    }
    io::WindowStore store;
    checkpoint::Saver saver(communicator, options, store);
    for (std::uint64_t step = 1; step <= 2; ++step) {
      Report report = saver.save(root / ("checkpoint-" + std::to_string(step)), step, sources, {});
      if (communicator.rank() == 0) warnings.push_back(std::move(report.warnings));
    }
  });
  return warnings;
}

TEST(QuantisedSaveOptions, ACodecThatCodesNothingIsSaidOnce) {
  struct Case {
    const char* codec;
    const char* section;
    const char* name;
    std::vector<std::uint64_t> shape;
    std::string why;
  };
  const std::vector<Case> cases = {
      {"q8", "optimizer", "w.", {4096}, "its moments are left alone, as 'w.exp_avg': it has fewer than 2 dimensions"},
      {"q4", "optimizer", "w.", {8, 8}, "its moments are left alone, as 'w.exp_avg': it has fewer than 1024 elements"},
      {"paddle-o2", "optimizer", "w.", {8}, "as 'w.exp_avg': PaddlePaddle's O2 leaves tensors of 1 dimension"},
      {"q8", "optimizer", "w_", {64, 64}, "no tensor of it is a moment of Adam by its name"},
      {"q8", "optimiser", "w.", {64, 64}, "no rank has a tensor of it"},
  };
  for (const Case& c : cases) {
    Options options = small_options();
    options.checks.stale = StaleSections::kIgnore;
    options.quantisation.codecs = {{c.section, c.codec}};
    const auto warnings = warnings_of_two_saves(options, c.name, c.shape);
    ASSERT_EQ(warnings.size(), 2U);
    ASSERT_EQ(warnings[0].size(), 1U) << c.why;
    const std::string what = std::string(c.codec) + " codes nothing in section '" + c.section + "'";
    EXPECT_THAT(warnings[0][0], AllOf(HasSubstr(what), HasSubstr(c.why)));
    EXPECT_THAT(warnings[1], testing::IsEmpty());
  }
  Options coded = quantised("q8");
  EXPECT_THAT(warnings_of_two_saves(coded, "w.", {64, 64})[0], testing::IsEmpty());
  coded.quantisation.codecs["model"] = "off";
  EXPECT_THAT(warnings_of_two_saves(coded, "w.", {64, 64})[0], testing::IsEmpty());
}

TEST(QuantisedSaveOptions, LeavingNothingOutIsSaidOnce) {
  for (const bool removes_masters : {true, false}) {
    Options options = small_options();
    options.checks.stale = StaleSections::kIgnore;
    (removes_masters ? options.quantisation.remove_master_weight : options.quantisation.skip_save_model_weight) = true;
    const auto warnings = warnings_of_two_saves(options, "w.", {64, 64});
    ASSERT_EQ(warnings.size(), 2U);
    EXPECT_THAT(warnings[0], testing::ElementsAre(
                                 AllOf(HasSubstr(removes_masters ? "remove_master_weight" : "skip_save_model_weight"),
                                       HasSubstr("leaves nothing out: no tensor of section master_weights in F32"))));
    EXPECT_THAT(warnings[1], testing::IsEmpty());
  }
}

TEST(QuantisedSaveOptions, OffAndDisabledSaveEverythingAsItIs) {
  for (const bool disabled : {false, true}) {
    const TempDir root;
    Options options = quantised(disabled ? "q8" : "off");
    options.quantisation.disable_ckpt_quant = disabled;
    save(root.path(), options, Cut::kRows, 2);
    const auto opened = opening::open_here(root / "checkpoint-1");
    EXPECT_TRUE(opened.quantised.empty());
    EXPECT_TRUE(opened.manifest->quantisation.empty());
    EXPECT_EQ(opened.stored.tensors.size(), moment_state().size());
  }
}

TEST(QuantisedSaveOptions, WeightsThatCanBeMadeFromOthersAreElided) {
  const TempDir root;
  Options options = quantised("q8");
  options.quantisation.remove_master_weight = true;
  save(root.path(), options, Cut::kMixed, 4);
  const auto removed = opening::open_here(root / "checkpoint-1");
  for (const auto& tensor : removed.stored.tensors) EXPECT_NE(tensor.section, "master_weights") << tensor.name;
  EXPECT_EQ(removed.manifest->extra.at("rebuilt"),
            base::Json::parse(R"({"master_weights": {"from": "model", "dtype": "F32"}})", "expected"));

  const TempDir other;
  options.quantisation = {};
  options.quantisation.skip_save_model_weight = true;
  save(other.path(), options, Cut::kMixed, 4);
  const auto skipped = opening::open_here(other / "checkpoint-1");
  for (const auto& tensor : skipped.stored.tensors) EXPECT_NE(tensor.section, "model") << tensor.name;
  EXPECT_EQ(skipped.manifest->extra.at("rebuilt"),
            base::Json::parse(R"({"model": {"from": "master_weights", "dtype": "BF16"}})", "expected"));
}

/// Size of a saved state: BF16 weights, F32 master weights and both moments of two large tensors and a norm.
std::uint64_t bytes_on_disk(const Quantisation& quantisation) {
  const TempDir root;
  Options options;
  options.engine.name = "posix";
  options.quantisation = quantisation;
  comm::run_simulated(2, [&](comm::Communicator& communicator) {
    std::vector<StateTensor> tensors;
    for (const auto& [name, shape] : std::map<std::string, std::vector<std::uint64_t>>{
             {"w", {1024, 1024}}, {"odd", {500, 1030}}, {"norm", {1024}}}) {
      tensors.push_back({"model", name, DType::kBF16, shape});
      tensors.push_back({"master_weights", name, DType::kF32, shape});
      tensors.push_back({"optimizer", name + ".exp_avg", DType::kF32, shape});
      tensors.push_back({"optimizer", name + ".exp_avg_sq", DType::kF32, shape});
    }
    RankState state(tensors, Cut::kRows, communicator.rank(), 2);  // zeros
    io::WindowStore store;
    checkpoint::Saver(communicator, options, store).save(root / "checkpoint-1", 1, state.sources(), {});
  });
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(root / "checkpoint-1")) bytes += entry.file_size();
  return bytes;
}

TEST(QuantisedSaveOptions, SizesOnDisk) {
  const auto plain = static_cast<double>(bytes_on_disk({}));
  Quantisation quantisation;
  quantisation.remove_master_weight = true;
  for (const auto& [codec, saved] : std::map<std::string, double>{{"q8", 0.70}, {"q4", 0.77}}) {
    quantisation.codecs = {{"optimizer", codec}};
    EXPECT_GE(1 - static_cast<double>(bytes_on_disk(quantisation)) / plain, saved) << codec;
  }
}

TEST(QuantisedSaveOptions, LeavingOutBothWeightsIsRefused) {
  const TempDir root;
  Options options = small_options();
  options.quantisation.remove_master_weight = true;
  options.quantisation.skip_save_model_weight = true;
  EXPECT_THAT(save_with(root.path(), options, Cut::kRows, 2, [](int, auto&, auto&) {}).failure,
              HasSubstr("would save no weights"));
}

}  // namespace
}  // namespace cairn::test
