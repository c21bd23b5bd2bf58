// Plans of all ranks together: every byte once, for any layout, number of ranks and block size.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/checked.hpp"
#include "format/safetensors.hpp"
#include "layouts.hpp"
#include "shard/box_math.hpp"
#include "simulation.hpp"

namespace cairn::plan {
namespace {

using plan_test::Bytes;
using plan_test::Knobs;
using plan_test::Seeded;
using plan_test::World;

Knobs random_knobs(Seeded& random) {
  Knobs knobs;
  knobs.block_bytes = random.one_in(3) ? 4096 : random.between(1, 300);
  knobs.window_bytes = knobs.block_bytes + random.between(0, 3 * knobs.block_bytes);
  knobs.share_bytes = random.between(1, 400);
  return knobs;
}

LayoutOptions random_options(Seeded& random) {
  LayoutOptions options;
  options.max_file_bytes = random.one_in(3) ? 5'000'000'000 : random.between(1, 3000);
  options.align_bytes = 8ULL << random.between(0, 10);
  if (random.one_in(4)) options.metadata["note"] = "a \"quoted\" one";
  return options;
}

/// Reads the headers again and compares the bytes of every stored box. Returns the number of bytes compared.
std::uint64_t check_files(const World& world, const FileLayout& layout, const std::vector<Bytes>& files) {
  std::uint64_t compared = 0;
  std::uint64_t data_bytes = 0;
  for (std::size_t f = 0; f < files.size(); ++f) {
    EXPECT_EQ(layout.files[f].size_bytes, files[f].size());
    EXPECT_EQ(layout.files[f].name, layout.stored.files[f].name);
    const std::span<const std::byte> bytes(files[f]);
    const std::uint64_t length = format::header_length(bytes.first(8), files[f].size(), layout.files[f].name);
    const std::string_view json(reinterpret_cast<const char*>(files[f].data()) + 8, length);
    const auto header = format::parse_header(json, files[f].size(), layout.files[f].name);
    EXPECT_EQ(header.data_start, layout.files[f].header.size());
    data_bytes += files[f].size() - header.data_start;
  }
  for (std::uint32_t t = 0; t < layout.stored.tensors.size(); ++t) {
    for (const auto& box : layout.stored.tensors[t].boxes) {
      const Bytes expected = plan_test::box_bytes(world, t, box.box);
      const auto begin = files[box.file].begin() + static_cast<std::ptrdiff_t>(box.offset_bytes);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), begin)) << "tensor " << t;
      compared += expected.size();
    }
  }
  EXPECT_EQ(compared, data_bytes);
  return compared;
}

std::uint64_t truth_bytes(const World& world) {
  std::uint64_t sum = 0;
  for (const Bytes& bytes : world.truth) sum += bytes.size();
  return sum;
}

TEST(WholePlan, SavesAndLoadsByAnyRanks) {
  Seeded random("WholePlan.SavesAndLoadsByAnyRanks");
  SCOPED_TRACE(random.note());
  std::uint64_t saved = 0;
  std::uint64_t loaded = 0;
  for (int round = 0; round < 150 && !HasFailure(); ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    World world = plan_test::random_world(random);
    plan_test::hold_at_random(random, world, static_cast<int>(random.between(1, 64)));
    const LayoutOptions options = random_options(random);
    const FileLayout layout = random.one_in(3) ? lay_out_shards(world.catalog, plan_test::held_pieces(world),
                                                                static_cast<int>(world.held.size()), options)
                                               : lay_out_hf(world.catalog, options);
    const auto files = plan_test::simulate_save(world, layout, random_knobs(random));
    EXPECT_EQ(check_files(world, layout, files), truth_bytes(world));
    saved += truth_bytes(world);
    plan_test::hold_at_random(random, world, static_cast<int>(random.between(1, 64)));
    for (auto& list : world.held) {
      if (random.one_in(3)) list.resize(list.size() / 2);  // ranks that load only a part of the state
    }
    loaded += plan_test::simulate_load(world, layout.stored, files, random_knobs(random), random.one_in(2));
  }
  EXPECT_GT(saved, 100'000U);
  EXPECT_GT(loaded, 100'000U);
}

TEST(WholePlan, AnyNumberOfRanksWritesTheSameFiles) {
  Seeded random("WholePlan.AnyNumberOfRanks");
  SCOPED_TRACE(random.note());
  std::uint64_t compared = 0;
  for (int round = 0; round < 20; ++round) {
    World world = plan_test::random_world(random);
    const LayoutOptions options = random_options(random);
    std::vector<Bytes> first;
    for (const int ranks : {1, 3, 8, 61}) {
      plan_test::hold_at_random(random, world, ranks);
      std::vector<CatalogTensor> shuffled = world.catalog.tensors;
      std::shuffle(shuffled.begin(), shuffled.end(), random.engine());
      const FileLayout layout = lay_out_hf(make_catalog(std::move(shuffled)), options);
      auto files = plan_test::simulate_save(world, layout, random_knobs(random));
      if (ranks == 1) {
        first = std::move(files);
        continue;
      }
      ASSERT_EQ(files, first) << "round " << round << " ranks " << ranks;
      for (const Bytes& file : files) compared += file.size();
    }
  }
  EXPECT_GT(compared, 10'000U);
}

/// Flat ranges of every tensor, as ZeRO and FSDP1 cut them.
void hold_flat(World& world, int ranks) {
  world.held.assign(static_cast<std::size_t>(ranks), {});
  for (std::uint32_t t = 0; t < world.catalog.tensors.size(); ++t) {
    const auto& shape = world.catalog.tensors[t].shape;
    const std::uint64_t each = base::ceil_div(shard::elements_of(shape), static_cast<std::uint64_t>(ranks));
    std::vector<Piece> claims;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::uint64_t begin = std::min(static_cast<std::uint64_t>(rank) * each, shard::elements_of(shape));
      const std::uint64_t end = std::min(begin + each, shard::elements_of(shape));
      for (Box& box : shard::boxes_of_flat_range(shape, begin, end)) claims.push_back({t, 0, rank, std::move(box)});
    }
    plan_test::hold(world, t, claims);
  }
}

/// A cut by columns over 8 ranks, with replicas on all other ranks.
void hold_columns(World& world, int ranks) {
  world.held.assign(static_cast<std::size_t>(ranks), {});
  for (std::uint32_t t = 0; t < world.catalog.tensors.size(); ++t) {
    const auto& shape = world.catalog.tensors[t].shape;
    for (int rank = 0; rank < ranks; ++rank) {
      Box box = shard::whole(shape);
      box.shape.back() /= 8;
      box.offset.back() = static_cast<std::uint64_t>(rank % 8) * box.shape.back();
      plan_test::hold(world, t, {{t, 0, rank, box}});
    }
  }
}

World scaled_world(Seeded& random) {
  World world;
  world.catalog = make_catalog({{"model", "embed", DType::kBF16, {250, 64}},
                                {"model", "norm", DType::kBF16, {64}},
                                {"model", "experts", DType::kF32, {5, 24, 32}},
                                {"optimizer", "embed/moment1_0", DType::kF32, {250, 64}}});
  for (const auto& tensor : world.catalog.tensors) {
    world.truth.push_back(
        test::random_bytes(random.engine(), format::tensor_bytes(tensor.dtype, tensor.shape, tensor.name)));
  }
  return world;
}

void save_and_load_at_scale(int ranks) {
  Seeded random("WholePlan.Scale");
  World world = scaled_world(random);
  LayoutOptions options;
  options.max_file_bytes = 40'000;
  const FileLayout layout = lay_out_hf(world.catalog, options);
  ASSERT_GE(layout.files.size(), 3U);
  Knobs knobs;
  knobs.block_bytes = 96;
  hold_columns(world, ranks);
  const auto by_columns = plan_test::simulate_save(world, layout, knobs);
  EXPECT_EQ(check_files(world, layout, by_columns), truth_bytes(world));
  hold_flat(world, ranks);
  EXPECT_EQ(plan_test::simulate_save(world, layout, knobs), by_columns);
  EXPECT_EQ(plan_test::simulate_load(world, layout.stored, by_columns, knobs, true), truth_bytes(world));
}

TEST(WholePlan, AThousandRanks) { save_and_load_at_scale(1000); }
TEST(WholePlan, SixteenThousandRanks) { save_and_load_at_scale(16'384); }

}  // namespace
}  // namespace cairn::plan
