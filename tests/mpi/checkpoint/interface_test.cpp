// What the public interface offers beside a plain save and load of everything: memory with gaps.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstring>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "environment.hpp"
#include "moment_state.hpp"
#include "random.hpp"
#include "same_text.hpp"
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

/// With rows long enough to bypass the windows, and a part of a grid of three dimensions.
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
      EXPECT_EQ(report.bytes, sum_over_ranks(loaded.bytes()));  // of elements, not of gaps
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
  options.quantisation.remove_master_weight = true;  // made from the model's by a load
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  MomentRank state(Cut::kColumns, world.rank, world.ranks);
  state.fill(1);
  checkpointer.save(1, state.sources());
  checkpointer.save(2, Gapped<Source>(state.sources(), world.rank).entries());
  const auto targets_of = [](MomentRank& rank) {
    std::vector<Target> targets;
    for (const Source& source : rank.sources()) {
      Target& target = targets.emplace_back();
      static_cast<Shard&>(target) = source;
      target.data = const_cast<void*>(source.data);
    }
    return targets;
  };
  for (const Cut cut : {Cut::kRows, Cut::kFlat}) {
    MomentRank expected(cut, world.rank, world.ranks);
    checkpointer.load(1, targets_of(expected));
    for (const std::uint64_t step : {1U, 2U}) {
      MomentRank loaded(cut, world.rank, world.ranks);
      const Gapped<Target> targets(targets_of(loaded), world.rank);
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

}  // namespace
}  // namespace cairn::test
