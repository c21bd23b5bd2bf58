// Quantised saves on MPI: a load with any other partition gets the values of the coded whole tensors, and saving these
// values again gives the same codes.
#include <gtest/gtest.h>
#include <mpi.h>

#include <algorithm>
#include <array>

#include "cairn/checkpoint.hpp"
#include "environment.hpp"
#include "moment_state.hpp"
#include "quant/codec.hpp"
#include "shared_temp_dir.hpp"
#include "test_name.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

Options options_for(const std::string& codec) {
  Options options;
  options.files.max_bytes = 100'000;
  options.files.block_bytes = 4096;
  options.limits.memory_budget_bytes = 64 << 10;
  options.quantisation.codecs = {{"optimizer", codec}};
  return options;
}

class Quantised : public testing::TestWithParam<const char*> {};

TEST_P(Quantised, LoadsInEveryCutWhatCodingTheWholeGives) {
  const World world;
  const SharedTempDir root;
  const auto content = loaded_content(moment_state(), &quant::find_codec(GetParam()));
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for(GetParam()));
  MomentRank state(Cut::kColumns, world.rank, world.ranks);
  state.fill(1);
  checkpointer.save(1, state.sources());
  for (const Cut cut : {Cut::kRows, Cut::kFlat, Cut::kGrid, Cut::kReplicated, Cut::kOneRank}) {
    MomentRank loaded(cut, world.rank, world.ranks);
    checkpointer.load(1, loaded.targets());
    loaded.expect(content);
  }
}

/// Cairn's own codecs. Codes of PaddlePaddle's codecs drift from one resume to the next, so Paddle allows one resume.
class OwnQuantised : public Quantised {};

TEST_P(OwnQuantised, TenResumesDoNotDrift) {
  const World world;
  const SharedTempDir root;
  const auto content = loaded_content(moment_state(), &quant::find_codec(GetParam()));
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for(GetParam()));
  MomentRank first(Cut::kRows, world.rank, world.ranks);
  first.fill(1);
  checkpointer.save(1, first.sources());
  const Cut cuts[] = {Cut::kFlat, Cut::kColumns, Cut::kGrid, Cut::kOneRank, Cut::kReplicated};
  for (std::uint64_t step = 1; step <= 10; ++step) {
    MomentRank resumed(cuts[step % 5], world.rank, world.ranks);
    checkpointer.load(step, resumed.targets());
    resumed.expect(content);
    checkpointer.save(step + 1, resumed.sources());
  }
}

TEST_P(Quantised, ASaveIntoARootWarnsOfTensorsBeyondTheFigures) {
  const World world;
  const SharedTempDir root;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for(GetParam()));
  MomentRank state(Cut::kRows, world.rank, world.ranks);
  state.fill(1);
  for (std::size_t i = 0; i < state.tensors().size(); ++i) {
    if (!state.tensors()[i].name.ends_with("/moment2_0")) continue;
    for (std::size_t at = 0; at < state.memory(i).size(); at += sizeof(float)) {
      // Values too far apart for one block, and for one column.
      const float value = std::array{1e-2F, 1e-5F, 1e-20F}[(at / sizeof value * 0x9E3779B97F4A7C15U >> 32) % 3];
      std::memcpy(&state.memory(i)[at], &value, sizeof value);
    }
  }
  const Report report = checkpointer.save(1, state.sources());
  if (world.rank != 0) return;
  ASSERT_FALSE(report.beyond_figures.empty());
  ASSERT_EQ(report.warnings.size(), 1U);
  EXPECT_NE(report.warnings[0].find(report.beyond_figures[0].name), std::string::npos) << report.warnings[0];
}

TEST_P(Quantised, ElidedWeightsComeBack) {
  const World world;
  const SharedTempDir root;
  for (const bool keeps_masters : {false, true}) {
    Options options = options_for(GetParam());
    options.quantisation.remove_master_weight = !keeps_masters;
    options.quantisation.skip_save_model_weight = keeps_masters;
    const std::uint64_t step = keeps_masters ? 2 : 1;
    Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
    MomentRank state(Cut::kRows, world.rank, world.ranks);
    state.fill(1);
    // Finite weights; each BF16 model weight is the upper half of its master weight.
    for (std::size_t i = 0; i + 1 < state.tensors().size(); i += 5) {
      const std::size_t elements = state.memory(i).size() / 2;
      for (std::size_t e = 0; e < elements; ++e) {
        state.memory(i)[2 * e + 1] &= std::byte{0x3f};
        std::memset(&state.memory(i + 1)[4 * e], 0, 2);
        std::memcpy(&state.memory(i + 1)[4 * e + 2], &state.memory(i)[2 * e], 2);
      }
    }
    checkpointer.save(step, state.sources());
    MomentRank loaded(Cut::kRows, world.rank, world.ranks);
    checkpointer.load(step, loaded.targets());
    std::size_t compared = 0;
    for (std::size_t i = 0; i + 1 < state.tensors().size(); i += 5) {
      EXPECT_TRUE(loaded.memory(i) == state.memory(i)) << state.tensors()[i].name;
      EXPECT_TRUE(loaded.memory(i + 1) == state.memory(i + 1)) << state.tensors()[i].name;
      compared += 2;
    }
    EXPECT_EQ(compared, 2 * moment_state().size() / 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, OwnQuantised, testing::Values("q8", "q4"));
INSTANTIATE_TEST_SUITE_P(Codecs, Quantised, testing::Values("q8", "q4", "paddle-o1", "paddle-o2"), kNamedByParameter);

}  // namespace
}  // namespace cairn::test
