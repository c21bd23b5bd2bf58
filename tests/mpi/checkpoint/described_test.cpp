// Tensors that are described by a State or in braces, and errors about what a root or a checkpoint lacks.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cairn/staging.hpp"
#include "cairn/state.hpp"
#include "same_text.hpp"
#include "sharded_state.hpp"
#include "shared_temp_dir.hpp"
#include "world.hpp"

namespace cairn::test {
namespace {

TEST(ListsInBraces, AreSavedAndLoaded) {
  const World world;
  const SharedTempDir root;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for_small_state());
  const std::vector<float> weight = {1, 2, 3};
  const Shard shard{"model", "w", DType::kF32, {3}, {{{0}, {3}}}};
  checkpointer.save(1, {{shard, weight.data()}});
  checkpointer.prepare_async({{shard, weight.data()}});
  checkpointer.save_async(2, {{shard, weight.data()}}).wait();
  checkpointer.save(3, {});  // no tensors
  const auto loads = [&](const auto& load) {
    std::vector<float> loaded(3);
    load(loaded.data());
    EXPECT_EQ(loaded, weight);
  };
  loads([&](float* to) { checkpointer.load(1, {{shard, to}}); });
  loads([&](float* to) { load_from(MPI_COMM_WORLD, root / "checkpoint-2", {{shard, to}}); });
  loads([&](float* to) { load_from(MPI_COMM_WORLD, std::vector{root / "checkpoint-2"}, {{shard, to}}); });
  EXPECT_EQ(checkpointer.load_latest({}).step, 3U);
  checkpointer.save(4, {{shard, weight.data()}});
  loads([&](float* to) { EXPECT_EQ(checkpointer.load_latest({{shard, to}}).step, 4U); });
}

TEST(DescribedOnce, AStateIsSavedAndLoadedInAnyLayout) {
  const World world;
  const SharedTempDir root;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for_small_state());
  constexpr std::uint64_t kRows = 10, kColumns = 6;
  const auto part_of = [&](int rank) {
    return kRows * static_cast<std::uint64_t>(rank) / static_cast<std::uint64_t>(world.ranks);
  };
  const std::uint64_t first = part_of(world.rank), rows = part_of(world.rank + 1) - first;
  std::vector<double> grid((rows + 2) * (kColumns + 2), -1);  // with a frame
  for (std::uint64_t r = 0; r < rows; ++r) {
    for (std::uint64_t c = 0; c < kColumns; ++c) {
      grid[(r + 1) * (kColumns + 2) + c + 1] = static_cast<double>((first + r) * kColumns + c);
    }
  }
  const std::vector<std::int64_t> steps = {5, 6};
  State state;
  state.add("fields", "grid", {kRows, kColumns}, {{first, 0}, {rows, kColumns}}, grid).placements = {
      {kColumns + 3, {kColumns + 2, 1}}};
  state.add("model", "steps", {2}, steps);
  checkpointer.save(1, state.sources());

  std::vector<double> whole(kRows * kColumns);
  std::vector<std::int64_t> loaded_steps(2), absent(2, 7);
  State other;
  other.add("fields", "grid", {kRows, kColumns}, whole);
  other.add("model", "steps", {2}, loaded_steps);
  other.add("model", "absent", {2}, absent).optional = true;
  EXPECT_EQ(checkpointer.load_latest(other.targets()).missing.size(), 1U);
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_EQ(whole[i], static_cast<double>(i));
  EXPECT_EQ(loaded_steps, steps);
  EXPECT_EQ(absent, std::vector<std::int64_t>(2, 7));

  std::vector<double> longer(whole.size() + 1);
  State wrong;
  wrong.add("fields", "grid", {kRows, kColumns}, world.rank == world.ranks - 1 ? longer : whole);
  for (const bool is_load : {false, true}) {
    expect_error_everywhere(ErrorKind::kUsage, "its memory has 488 bytes, but its 1 box of F64 takes 480", [&] {
      if (is_load) {
        checkpointer.load(1, wrong.targets());
      } else {
        checkpointer.save(2, wrong.sources());
      }
    });
  }
}

TEST(WhatIsMissing, ATiedNameLeadsToTheTensorThatIsStored) {
  const World world;
  const SharedTempDir root;
  Options options = options_for_small_state();
  options.files.metadata["lm_head.weight"] = "wte.weight";  // as safetensors.torch.save_model leaves a tied name
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options);
  std::vector<float> memory(3);
  State state;
  state.add("model", "wte.weight", {3}, memory);
  checkpointer.save(1, state.sources());
  State tied;
  if (world.rank == world.ranks - 1) tied.add("model", "lm_head.weight", {3}, memory);
  expect_error_everywhere(
      ErrorKind::kNotFound,
      "has no tensor 'lm_head.weight' in section 'model'; its metadata say that it is the same as 'wte.weight': load "
      "that one",
      [&] { checkpointer.load(1, tied.targets()); });
}

TEST(WhatIsMissing, IsToldApartOnAllRanksWithTheNearest) {
  const World world;
  const SharedTempDir root;
  Checkpointer checkpointer(MPI_COMM_WORLD, root.path(), options_for_small_state());
  std::vector<float> memory(3);
  const auto missing = [&](const std::string& part, const auto& call) {
    Missing found = Missing::kUnspecified;
    expect_error_everywhere(ErrorKind::kNotFound, part, [&] {
      try {
        call();
      } catch (const Error& error) {
        found = error.missing();
        throw;
      }
    });
    return found;
  };
  EXPECT_EQ(missing("has no checkpoint to resume from", [&] { checkpointer.load_latest({}); }), Missing::kAnyStep);
  const std::string place = "' does not exist: '" + root.path().string() + "' has ";
  EXPECT_EQ(missing(place + "no checkpoint", [&] { checkpointer.load(7, {}); }), Missing::kStep);
  Extras extras;
  extras.carry_texts = {{"config.json", "{}"}};
  State state;
  state.add("model", "wte.weight", {3}, memory);
  state.add("fields", "density", {3}, memory);
  checkpointer.save(10, state.sources(), extras);
  checkpointer.save(20, state.sources());
  EXPECT_EQ(missing(place + "steps 10 and 20", [&] { checkpointer.load(7, {}); }), Missing::kStep);
  EXPECT_EQ(missing(place + "steps 10 and 20", [&] { static_cast<void>(checkpointer.tensors(7)); }), Missing::kStep);
  EXPECT_EQ(missing(place + "steps 10 and 20", [&] { static_cast<void>(checkpointer.load_extras(7)); }),
            Missing::kStep);
  EXPECT_EQ(missing(place + "steps 10 and 20", [&] { load_from(MPI_COMM_WORLD, root / "checkpoint-7", {}); }),
            Missing::kStep);
  EXPECT_EQ(missing("does not exist", [&] { load_from(MPI_COMM_WORLD, root / "nowhere", {}); }), Missing::kUnspecified);

  const auto missing_tensor = [&](const char* section, const char* name, const std::string& part) {
    for (const bool converts : {false, true}) {  // by the catalog, and by a view
      State wanted;
      if (world.rank == world.ranks - 1) wanted.add(section, name, {3}, memory);
      LoadOptions options;
      options.cast_floats = converts;
      EXPECT_EQ(missing(std::string("has no tensor '") + name + "' in section '" + section + "'; " + part,
                        [&] { checkpointer.load(10, wanted.targets(), options); }),
                Missing::kTensor);
    }
  };
  missing_tensor("model", "density", "it is in section 'fields'");
  missing_tensor("model", "wte.weigth", "the nearest name is 'wte.weight'");
  missing_tensor("model", "lm_head", "Checkpointer::tensors() and 'cairn inspect' list what it has");
  missing_tensor("optimizer", "lm_head", "it has no such section, only 'model' and 'fields'");
  EXPECT_EQ(missing("lm_head",
                    [&] {
                      State wanted;
                      wanted.add("model", "lm_head", {3}, memory);
                      checkpointer.load_latest(wanted.targets());
                    }),
            Missing::kTensor);

  LoadOptions nothing;
  nothing.select.names = {"none*"};
  EXPECT_EQ(missing("selects no target", [&] { checkpointer.load(10, state.targets(), nothing); }), Missing::kSelected);
  EXPECT_EQ(missing("has no blobs of ranks", [&] { static_cast<void>(checkpointer.load_rank_blob(10, 0)); }),
            Missing::kRankBlob);
  EXPECT_EQ(missing("carries no file 'a.json'; it carries 'config.json'",
                    [&] { checkpointer.load_carried(10, "a.json", {}); }),
            Missing::kCarriedFile);
  EXPECT_EQ(missing("carries no file 'a.json'; it carries none", [&] { checkpointer.load_carried(20, "a.json", {}); }),
            Missing::kCarriedFile);
}

}  // namespace
}  // namespace cairn::test
