// The public interface apart from plain saves and loads: memory with gaps, partial loads, optional targets,
// and targets in another float dtype.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/staging.hpp"
#include "environment.hpp"
#include "expect_converted.hpp"
#include "moment_state.hpp"
#include "random.hpp"
#include "same_text.hpp"
#include "shard/box_math.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "with_gaps.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

std::uint64_t sum_over_ranks(std::uint64_t mine) {
  std::uint64_t sum = 0;
  MPI_Allreduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

/// The small state, a tensor with rows long enough to bypass the windows, and a 3-d tensor of doubles.
std::vector<StateTensor> state_with_long_rows() {
  std::vector<StateTensor> tensors = small_state();
  tensors.push_back({"model", "long_rows", DType::kF32, {11, 20'000}});
  tensors.push_back({"model", "grid", DType::kF64, {9, 14, 10}});
  return tensors;
}

class WithGapsOnEngine : public testing::TestWithParam<const char*> {};

TEST_P(WithGapsOnEngine, SavesAndLoadsInEveryCutAndTouchesNoGap) {
  const World world;
  const SharedTempDir root;
  const std::vector<StateTensor> tensors = state_with_long_rows();
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for_small_state(GetParam()));
  std::uint64_t step = 0;
  std::size_t gap_bytes = 0;
  for (const Cut cut : {Cut::kGrid, Cut::kFlat}) {
    RankState state(tensors, cut, world.rank, world.ranks);
    state.fill(static_cast<int>(++step));
    const Gapped<Source> sources(state.sources(), world.rank);
    checkpointer.save(step, sources.entries());
    for (const Cut other : {Cut::kGrid, Cut::kMixed}) {
      RankState loaded(tensors, other, world.rank, world.ranks);
      const Gapped<Target> targets(loaded.targets(), world.rank);
      const Report report = checkpointer.load(step, targets.entries());
      EXPECT_EQ(report.bytes, sum_over_ranks(loaded.bytes()));  // without the gaps
      targets.finish_load();
      gap_bytes += targets.gap_bytes();
      EXPECT_EQ(loaded.matching_bytes(static_cast<int>(step)), loaded.bytes());
    }
  }
  EXPECT_GT(gap_bytes, 1000U);
}

INSTANTIATE_TEST_SUITE_P(Engines, WithGapsOnEngine, testing::Values("mpiio", "posix", "direct"));

TEST(WithGapsMemory, APlanIsUsedAgainForTheSameGapsOnly) {
  const World world;
  const SharedTempDir root;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for_small_state());
  RankState state(small_state(), Cut::kRows, world.rank, world.ranks);
  state.fill(1);
  const Gapped<Source> gapped(state.sources(), world.rank);
  EXPECT_FALSE(checkpointer.save(1, gapped.entries()).plan_reused);
  EXPECT_TRUE(checkpointer.save(2, gapped.entries()).plan_reused);
  EXPECT_FALSE(checkpointer.save(3, state.sources()).plan_reused);
  RankState loaded(small_state(), Cut::kRows, world.rank, world.ranks);
  for (const std::uint64_t step : {1U, 2U, 3U}) {
    loaded.clear();
    checkpointer.load(step, loaded.targets());
    EXPECT_EQ(loaded.matching_bytes(1), loaded.bytes());
  }
}

class WithGapsQuantised : public testing::TestWithParam<const char*> {};

TEST_P(WithGapsQuantised, GivesTheMomentsOfMemoryWithoutGaps) {
  const World world;
  const SharedTempDir root;
  Options options = options_for_small_state();
  options.limits.memory_budget_bytes = 1 << 20;
  options.quantisation.codecs["optimizer"] = GetParam();
  options.quantisation.remove_master_weight = true;  // a load makes masters from the model's weights
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  MomentRank state(Cut::kColumns, world.rank, world.ranks);
  state.fill(1);
  checkpointer.save(1, state.sources());
  checkpointer.save(2, Gapped<Source>(state.sources(), world.rank).entries());
  for (const Cut cut : {Cut::kRows, Cut::kFlat}) {
    MomentRank expected(cut, world.rank, world.ranks);
    checkpointer.load(1, expected.targets());
    for (const std::uint64_t step : {1U, 2U}) {
      MomentRank loaded(cut, world.rank, world.ranks);
      const Gapped<Target> targets(loaded.targets(), world.rank);
      checkpointer.load(step, targets.entries());
      targets.finish_load();
      for (std::size_t i = 0; i < loaded.tensors().size(); ++i) {
        EXPECT_TRUE(loaded.memory(i) == expected.memory(i)) << loaded.tensors()[i].name << " of step " << step;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, WithGapsQuantised, testing::Values("q8", "paddle-o1"), [](const auto& codec) {
  return std::string(codec.param).substr(0, codec.param[0] == 'q' ? 2 : 6);
});

/// The message of the Error that `call` throws, or "".
template <class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(WithGapsMemory, WrongStridesAreNamedOnAllRanks) {
  const World world;
  const SharedTempDir root;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for_small_state());
  std::vector<std::byte> memory(4096);
  Source good;
  static_cast<Shard&>(good) = {"model", "w", DType::kF32, {4, 6}, {{{0, 0}, {4, 6}}}, {{3, {8, 1}}}};
  good.data = memory.data();
  const auto refused = [&](DType dtype, const std::vector<Placement>& placements) {
    Source bad = good;
    if (world.rank == world.ranks - 1) {
      bad.dtype = dtype;
      bad.placements = placements;
    }
    std::string message = message_of([&] { checkpointer.save(1, {&bad, 1}); });
    expect_same_everywhere(message);
    return message;
  };
  const auto names = [](const std::string& message, const std::string& what) {
    EXPECT_NE(message.find("'w'"), std::string::npos) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  names(refused(DType::kF32, {{0, {8, 2}}}), "dimension 1 has stride 2");
  names(refused(DType::kF32, {{0, {5, 1}}}), "dimension 0 has stride 5, less than the 6 elements");
  names(refused(DType::kF32, {{0, {1}}}), "1 strides for 2 dimensions");
  names(refused(DType::kF32, {{0, {}}, {0, {}}}), "2 placements for 1 boxes");
  names(refused(DType::kF32, {{0, {1ULL << 62, 1}}}), "beyond what memory can hold");
  names(refused(DType::kF32, {{0, {1ULL << 63, 1}}}), "beyond 2^64");
  names(refused(DType::kF32, {{1ULL << 62, {}}}), "beyond what memory can hold");
  names(refused(DType::kF4, {{0, {8, 1}}}), "strides leave gaps");
  names(refused(DType::kF4, {{3, {}}}), "begins inside a byte");
  EXPECT_FALSE(checkpointer.latest().has_value());
  checkpointer.save(1, {&good, 1});
}

/// A checkpoint of the small state with a blob of each rank.
struct Saved {
  explicit Saved(const World& where)
      : world(where),
        checkpointer(MPI_COMM_WORLD, root.path(), options_for_small_state()),
        state(small_state(), Cut::kRows, where.rank, where.ranks) {
    state.fill(1);
    Extras extras;
    extras.rank_blob = {std::byte{1}, std::byte{2}};
    checkpointer.save(1, state.sources(), extras);
    state.clear();
  }
  /// Loads by both public calls; the memory is cleared before each.
  void load(const std::vector<Target>& targets, const LoadOptions& options,
            const std::function<void(const Report&)>& check) {
    state.clear();
    check(checkpointer.load(1, targets, options));
    state.clear();
    check(load_from(MPI_COMM_WORLD, root / "checkpoint-1", targets, options_for_small_state(), options));
  }
  const World& world;
  SharedTempDir root;
  Checkpointer checkpointer;
  RankState state;
};

Target optional_target(const std::string& name, std::vector<float>& memory) {
  Target target;
  static_cast<Shard&>(target) = {"model", name, DType::kF32, {memory.size()}, {{{0}, {memory.size()}}}};
  target.data = memory.data();
  target.optional = true;
  return target;
}

TEST(PartialLoads, OptionalTargetsThatAreMissingAreReportedAndStay) {
  const World world;
  Saved saved(world);
  std::vector<float> memory(3, 7.5F);
  std::vector<Target> targets = saved.state.targets();
  for (Target& target : targets) target.optional = world.rank == 0;
  const bool is_last = world.rank == world.ranks - 1;
  if (is_last) targets.insert(targets.begin() + 1, optional_target("new.head", memory));
  saved.load(targets, {}, [&](const Report& report) {
    EXPECT_EQ(report.missing, is_last ? (std::vector<TensorName>{{"model", "new.head"}}) : std::vector<TensorName>());
    EXPECT_TRUE(report.not_loaded.empty());
    EXPECT_EQ(saved.state.matching_bytes(1), saved.state.bytes());
    EXPECT_EQ(memory, std::vector<float>(3, 7.5F));
  });
  if (is_last) targets[1].optional = false;
  std::string message = message_of([&] { saved.checkpointer.load(1, targets); });
  EXPECT_NE(message.find("'new.head'"), std::string::npos) << message;
  expect_same_everywhere(message);
  if (is_last) targets[1] = optional_target(targets[0].name, memory);  // exists with a different shape
  message = message_of([&] { saved.checkpointer.load(1, targets); });
  EXPECT_NE(message.find("expected F32 [3]"), std::string::npos) << message;
  expect_same_everywhere(message);
}

TEST(PartialLoads, WhatNoRankLoadedIsListed) {
  const World world;
  Saved saved(world);
  const bool is_last = world.rank == world.ranks - 1;
  std::vector<Target> some;
  std::vector<TensorName> left;
  const std::vector<Target> all = saved.state.targets();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % 3 == 0) left.push_back({all[i].section, all[i].name});
    if (i % 3 == 2 || (i % 3 == 1 && is_last)) some.push_back(all[i]);
  }
  std::ranges::sort(left, {}, [](const TensorName& name) { return std::pair(name.section, name.name); });
  ASSERT_GT(left.size(), 2U);
  LoadOptions options;
  options.list_not_loaded = true;
  saved.load(some, options, [&](const Report& report) {
    EXPECT_EQ(report.not_loaded, world.rank == 0 ? left : std::vector<TensorName>());  // blobs are not listed
  });
  options.select.sections = {left[0].section};
  std::erase_if(left, [&](const TensorName& name) { return name.section != left[0].section; });
  saved.load(some, options, [&](const Report& report) {
    EXPECT_EQ(report.not_loaded, world.rank == 0 ? left : std::vector<TensorName>());
  });
  saved.load(all, {{}, true, false}, [](const Report& report) { EXPECT_TRUE(report.not_loaded.empty()); });
  saved.load(some, {}, [](const Report& report) { EXPECT_TRUE(report.not_loaded.empty()); });
}

TEST(PartialLoads, MomentsAreListedAndTheirCodesAreNot) {
  const World world;
  const SharedTempDir root;
  Options options = options_for_small_state();
  options.limits.memory_budget_bytes = 1 << 20;
  options.quantisation.codecs["optimizer"] = "q8";
  options.quantisation.remove_master_weight = true;
  MomentRank state(Cut::kRows, world.rank, world.ranks);
  state.fill(1);
  Checkpointer(MPI_COMM_WORLD, root.path(), options).save(1, state.sources());
  const auto left_of = [&](const Options& how, const std::string& loaded) {
    LoadOptions load_options;
    load_options.list_not_loaded = true;
    std::vector<Target> targets = state.targets();
    std::erase_if(targets, [&](const Target& target) { return target.section != loaded; });
    std::map<std::string, std::size_t> count;
    for (const TensorName& name :
         load_from(MPI_COMM_WORLD, root / "checkpoint-1", targets, how, load_options).not_loaded) {
      EXPECT_EQ(name.name.find('@'), std::string::npos) << name.name;
      ++count[name.section];
    }
    return count;
  };
  const std::size_t weights = moment_state().size() / 5;
  using Count = std::map<std::string, std::size_t>;
  const bool is_root = world.rank == 0;
  EXPECT_EQ(left_of(options, "model"),
            (is_root ? Count{{"master_weights", weights}, {"optimizer", 3 * weights}} : Count()));
  EXPECT_EQ(left_of(options, "optimizer"),
            (is_root ? Count{{"master_weights", weights}, {"model", weights}} : Count()));

  // A checkpoint without master weights: a load can make them from the model's weights.
  options.quantisation.remove_master_weight = false;
  options.quantisation.master_weight_compatible = true;
  options.overwrite = true;
  std::vector<Source> sources = state.sources();
  std::erase_if(sources, [](const Source& source) { return source.section == "master_weights"; });
  Checkpointer(MPI_COMM_WORLD, root.path(), options).save(1, sources);
  EXPECT_EQ(left_of(options, "model"), (is_root ? Count{{"optimizer", 3 * weights}} : Count()));
}

TEST(PartialLoads, OnlyWhatIsSelectedIsLoaded) {
  const World world;
  Saved saved(world);
  std::vector<Target> targets = saved.state.targets();
  std::string prefix;
  for (const Target& target : targets) {
    if (target.name.find(".layers.0.") != std::string::npos) prefix = target.name.substr(0, target.name.find("0.") + 2);
  }
  ASSERT_FALSE(prefix.empty());
  LoadOptions options;
  options.select = {{"model"}, {prefix + "*"}};
  const auto is_selected = [&](const Target& target) {
    return target.section == "model" && target.name.starts_with(prefix);
  };
  RankState expected(small_state(), Cut::kRows, world.rank, world.ranks);
  expected.fill(1);
  const std::vector<Target> whole = expected.targets();
  std::uint64_t selected = 0;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    std::uint64_t elements = 0;
    for (const Box& box : whole[i].boxes) elements += shard::elements_of(box);
    const std::uint64_t bytes = elements * bits_of(whole[i].dtype) / 8;
    if (is_selected(whole[i])) {
      ++selected;
    } else if (bytes != 0) {
      std::memset(whole[i].data, 0, bytes);
    }
  }
  // Tensors outside the selection are not examined.
  std::vector<float> memory(3, 7.5F);
  Target other = optional_target("no.such.tensor", memory);
  other.optional = false;
  other.data = nullptr;
  targets.push_back(other);
  saved.load(targets, options, [&](const Report& report) {
    EXPECT_EQ(report.tensors, selected);
    EXPECT_TRUE(report.missing.empty());
    EXPECT_EQ(saved.state.equal_bytes(expected), saved.state.bytes());
    EXPECT_LT(saved.state.matching_bytes(1), saved.state.bytes());
  });
  options.select.sections.push_back("no such section");
  options.select.names.push_back("no such*");
  saved.load(targets, options, [&](const Report& report) {
    const auto lines = report.warnings;
    EXPECT_EQ(std::ranges::count_if(lines, [](const std::string& line) { return line.find("no such") != line.npos; }),
              2)
        << "a pattern without a target is said";
  });
  options.select.sections.clear();
  options.select.names = {"no such*"};
  std::string message = message_of([&] { saved.checkpointer.load(1, targets, options); });
  EXPECT_NE(message.find("selects no target"), std::string::npos) << message;
  expect_same_everywhere(message);
}

TEST(PartialLoads, LoadOptionsThatDifferAreNamed) {
  const World world;
  if (world.ranks == 1) return;
  Saved saved(world);
  const bool is_last = world.rank == world.ranks - 1;
  const auto refused = [&](const LoadOptions& last, const std::string& name) {
    const std::string message =
        message_of([&] { saved.checkpointer.load(1, saved.state.targets(), is_last ? last : LoadOptions{}); });
    EXPECT_NE(message.find("load option '" + name + "' differs"), std::string::npos) << message;
    expect_same_everywhere(message);
  };
  refused({{}, true, false}, "list_not_loaded");
  refused({{}, false, true}, "cast_floats");
  refused({{}, false, false, {"a*"}}, "pad_rows");
  refused({{{}, {"a*"}}, false, false}, "select.names");
  refused({{{"model"}, {}}, false, false}, "select.sections");
}

/// A vocabulary of 61 rows, and its targets with more or fewer rows.
TEST(PaddedRows, LoadTheRowsThatBothHave) {
  constexpr std::uint64_t kColumns = 80;
  const World world;
  const SharedTempDir root;
  Options options = options_for_small_state();
  options.quantisation.codecs["optimizer"] = "q8";
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  const auto with_rows = [](std::uint64_t rows, DType dtype = DType::kF32) {
    return std::vector<StateTensor>{{"model", "embed.weight", dtype, {rows, kColumns}},
                                    {"model", "norm", dtype, {kColumns}},
                                    {"optimizer", "embed.weight/moment1_0", DType::kF32, {rows, kColumns}},
                                    {"optimizer", "embed.weight/moment2_0", DType::kF32, {rows, kColumns}}};
  };
  std::vector<std::vector<float>> values;
  for (const StateTensor& tensor : with_rows(61)) {
    std::vector<float>& all = values.emplace_back(shard::elements_of(tensor.shape));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = 1 + static_cast<float>(i) / 2048;
  }
  std::vector<Source> sources;
  for (std::size_t t = 0; t < values.size() && world.rank == 0; ++t) {
    const StateTensor tensor = with_rows(61)[t];
    sources.push_back(
        {{tensor.section, tensor.name, tensor.dtype, tensor.shape, {shard::whole(tensor.shape)}}, values[t].data()});
  }
  checkpointer.save(1, sources);
  std::vector<std::vector<float>> whole;
  for (const std::vector<float>& all : values) whole.emplace_back(all.size());
  std::vector<Target> all_of_it;
  for (std::size_t t = 0; t < values.size(); ++t) {
    const StateTensor tensor = with_rows(61)[t];
    all_of_it.push_back(
        {{tensor.section, tensor.name, tensor.dtype, tensor.shape, {shard::whole(tensor.shape)}}, whole[t].data()});
  }
  checkpointer.load(1, all_of_it);

  LoadOptions how;
  how.pad_rows = {"embed.*"};
  const auto ranks = static_cast<std::uint64_t>(world.ranks);
  const auto rank = static_cast<std::uint64_t>(world.rank);
  constexpr float kLeft = -7;
  for (const std::uint64_t rows : {64U, 128U, 61U, 50U, 1U, 0U}) {
    for (const bool with_gaps : {false, true}) {
      const std::vector<StateTensor> tensors = with_rows(rows);
      const std::uint64_t first = rows * rank / ranks;
      const std::uint64_t mine = rows * (rank + 1) / ranks - first;
      const std::uint64_t width = with_gaps ? kColumns + 3 : kColumns;
      std::vector<std::vector<float>> memory(tensors.size(), std::vector<float>(mine * width + kColumns, kLeft));
      std::vector<Target> targets;
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        const bool has_rows = tensors[t].shape.size() == 2;
        const Box box = has_rows ? Box{{first, 0}, {mine, kColumns}} : shard::whole(tensors[t].shape);
        Shard wanted{tensors[t].section, tensors[t].name, tensors[t].dtype, tensors[t].shape, {box}};
        if (has_rows && with_gaps) wanted.placements = {{0, {width, 1}}};
        targets.push_back({wanted, memory[t].data()});
      }
      const Report report = checkpointer.load(1, targets, how);
      std::uint64_t loaded = 0;
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        if (tensors[t].shape.size() == 1) {
          EXPECT_TRUE(std::equal(whole[t].begin(), whole[t].end(), memory[t].begin()));
          loaded += kColumns;
          continue;
        }
        for (std::uint64_t i = 0; i < mine * width; ++i) {
          const std::uint64_t row = first + i / width;
          const bool is_stored = row < 61 && i % width < kColumns;
          ASSERT_EQ(memory[t][i], is_stored ? whole[t][row * kColumns + i % width] : kLeft)
              << rows << ' ' << t << ' ' << i;
          loaded += is_stored ? 1 : 0;
        }
      }
      EXPECT_EQ(report.bytes, sum_over_ranks(loaded * sizeof(float)));
    }
  }

  const auto refused = [&](const std::vector<StateTensor>& tensors, const LoadOptions& options_of_load) {
    std::vector<float> memory(100'000);
    std::vector<Target> targets;
    for (const StateTensor& tensor : tensors) {
      targets.push_back(
          {{tensor.section, tensor.name, tensor.dtype, tensor.shape, {shard::whole(tensor.shape)}}, memory.data()});
    }
    const std::string message = message_of([&] { checkpointer.load(1, targets, options_of_load); });
    expect_same_everywhere(message);
    return message;
  };
  const char* const hint = "; LoadOptions::pad_rows would load the rows that both have";
  EXPECT_NE(refused(with_rows(64), {}).find(hint), std::string::npos);
  LoadOptions other;
  other.pad_rows = {"lm_head*", "norm"};
  EXPECT_NE(refused(with_rows(64), other).find(hint), std::string::npos);
  const std::string columns = refused({{"model", "embed.weight", DType::kF32, {64, kColumns + 1}}}, how);
  EXPECT_NE(columns.find("is F32 [61, 80], expected F32 [64, 81]"), std::string::npos) << columns;
  EXPECT_EQ(columns.find("pad_rows"), std::string::npos) << columns;
  EXPECT_NE(refused(with_rows(64, DType::kF16), how).find("cast_floats"), std::string::npos);
}

std::vector<StateTensor> float_state(std::optional<DType> dtype = std::nullopt) {
  std::vector<StateTensor> tensors;
  for (const DType own : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kF8E5M2}) {
    const std::string name(name_of(own));
    tensors.push_back({"model", name, dtype.value_or(own), {61, 20}});
    tensors.push_back({"model", name + ".cube", dtype.value_or(own), {5, 7, 9}});
  }
  return tensors;
}

TEST(CastLoads, EveryFloatLoadsIntoEveryOther) {
  const World world;
  const SharedTempDir root;
  Options options = options_for_small_state();
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  RankState state(float_state(), Cut::kRows, world.rank, world.ranks);
  state.fill(1);
  checkpointer.save(1, state.sources());
  RankState plain(float_state(), Cut::kColumns, world.rank, world.ranks);
  plain.fill(1);
  LoadOptions cast;
  cast.cast_floats = true;
  for (const DType to : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    RankState converted(float_state(to), Cut::kColumns, world.rank, world.ranks);
    const std::vector<Target> targets = converted.targets();
    for (const bool from_path : {false, true}) {
      converted.clear();
      const Gapped<Target> gapped(targets, world.rank);
      const Report report = from_path
                                ? load_from(MPI_COMM_WORLD, root / "checkpoint-1", gapped.entries(), options, cast)
                                : checkpointer.load(1, gapped.entries(), cast);
      gapped.finish_load();
      EXPECT_EQ(expect_converted(plain.targets(), targets), converted.bytes());
      EXPECT_EQ(report.bytes, sum_over_ranks(converted.bytes()));
    }
  }
  plain.clear();
  checkpointer.load(1, plain.targets(), cast);  // nothing to convert
  EXPECT_EQ(plain.matching_bytes(1), plain.bytes());

  const auto refused = [&](std::size_t tensor, DType dtype, const LoadOptions& how, const char* text) {
    std::vector<Target> targets = plain.targets();
    if (world.rank == world.ranks - 1) targets[tensor].dtype = dtype;
    const std::string message = message_of([&] { checkpointer.load(1, targets, how); });
    EXPECT_NE(message.find(text), std::string::npos) << message;
    expect_same_everywhere(message);
    return message;
  };
  EXPECT_NE(refused(2, DType::kF16, {}, "is F32 [61, 20], expected F16").find("cast_floats would"), std::string::npos);
  EXPECT_EQ(refused(2, DType::kU16, cast, "is F32 [61, 20], expected U16").find("cast_floats"), std::string::npos);
  refused(2, DType::kF8E5M2, cast, "is F32 [61, 20], expected F8_E5M2");
}

TEST(CastLoads, MomentsAndRebuiltWeights) {
  const World world;
  const SharedTempDir root;
  Options options = options_for_small_state();
  options.limits.memory_budget_bytes = 1 << 20;
  options.quantisation.codecs["optimizer"] = "q8";
  options.quantisation.remove_master_weight = true;
  MomentRank state(Cut::kRows, world.rank, world.ranks);
  state.fill(1);
  for (std::size_t i = 0; i < state.tensors().size(); i += 5) {  // finite weights: NaNs have separate rules
    for (std::size_t at = 1; at < state.memory(i).size(); at += 2) state.memory(i)[at] &= std::byte{0x3f};
  }
  {
    Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
    checkpointer.save(1, state.sources());
    MomentRank plain(Cut::kFlat, world.rank, world.ranks);
    checkpointer.load(1, plain.targets());
    LoadOptions cast;
    cast.cast_floats = true;
    for (const DType to : {DType::kBF16, DType::kF64}) {
      MomentRank converted(Cut::kFlat, world.rank, world.ranks);
      std::vector<Target> targets = converted.targets();
      std::uint64_t bytes = 0;
      for (std::size_t i = 0; i < targets.size(); ++i) {
        targets[i].dtype = to;
        converted.memory(i).assign(bytes_of(targets[i], nullptr).size(), std::byte{});
        targets[i].data = converted.memory(i).data();
        bytes += converted.memory(i).size();
      }
      const Gapped<Target> gapped(targets, world.rank);
      checkpointer.load(1, gapped.entries(), cast);
      gapped.finish_load();
      EXPECT_EQ(expect_converted(plain.targets(), targets), bytes);
    }
  }
  // Model weights that a load makes from the masters are not cast as well: that would round twice.
  options.quantisation.remove_master_weight = false;
  options.quantisation.skip_save_model_weight = true;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  checkpointer.save(2, state.sources());
  std::vector<Target> targets = state.targets();
  targets.resize(1);
  ASSERT_EQ(targets[0].section, "model");
  targets[0].dtype = DType::kF16;
  const std::string message = message_of([&] { checkpointer.load(2, targets, {{}, false, true}); });
  EXPECT_NE(message.find("is BF16"), std::string::npos) << message;
  expect_same_everywhere(message);
}

}  // namespace
}  // namespace cairn::test
