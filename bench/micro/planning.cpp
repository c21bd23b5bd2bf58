// Benchmarks of the steps in which one of many ranks plans a save: Llama 3.1 405B on 16,384 ranks and DeepSeek-V3 on
// 2,048, both with F32 master weights and Adam moments. `cairn plan` measures whole ranks with their messages.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>

#include "bench/demo_state.hpp"
#include "check.hpp"
#include "checkpoint/window_io.hpp"
#include "plan/coverage.hpp"
#include "plan/transfers.hpp"
#include "planning/catalog_steps.hpp"
#include "planning/describe.hpp"
#include "planning/layout_steps.hpp"
#include "shard/shard_map.hpp"
#include "simulate/plan_world.hpp"

namespace cairn::micro {
namespace {

/// A model in a layout, and its catalog as ranks receive it.
struct Job {
  bench::DemoState state;
  shard::ShardMap map;
  Options options;
  std::vector<base::Bytes> stretches;
  std::uint64_t files = 0;  ///< expected number of files

  Job(const char* model, const char* layout, std::uint64_t expected_files)
      : state(bench::demo_state_by_name(model, std::nullopt)),
        map(shard::Layout::from_text(layout), state.model, state.sections, state.tensors),
        files(expected_files) {
    std::vector<plan::CatalogTensor> tensors;
    for (std::size_t i = 0; i < state.tensors.size(); ++i) {
      tensors.push_back({state.sections[i], state.tensors[i].name, state.tensors[i].dtype, state.tensors[i].shape});
    }
    const plan::Catalog catalog = plan::make_catalog(std::move(tensors));
    // Stretches of 225 tensors, which is a 1,024th of DeepSeek-V3's catalog.
    for (std::size_t first = 0; first < catalog.tensors.size(); first += 225) {
      plan::CatalogPacker packer;
      const std::size_t last = std::min(first + 225, catalog.tensors.size());
      for (std::size_t i = first; i < last; ++i) packer.add(catalog.tensors[i]);
      stretches.push_back(packer.take());
    }
  }
  [[nodiscard]] plan::HfLayout assign() const {
    return {plan::PackedCatalog(stretches),
            {options.files.max_bytes, options.files.align_bytes, options.files.metadata}};
  }
  [[nodiscard]] simulate::PlanInput input() const { return {state, map, options}; }
};

const Job& job(std::int64_t number) {
  static const auto llama =
      std::make_unique<Job>("llama-3.1-405b", "tp=8,pp=16,dp=128,zero=1,uneven", std::uint64_t{1458});
  static const auto deepseek =
      std::make_unique<Job>("deepseek-v3", "pp=16,dp=128,ep=64,zero=1,uneven", std::uint64_t{1789});
  return number == 405 ? *llama : *deepseek;
}

void both(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(405)->Arg(671)->ArgName("billions")->Unit(benchmark::kMillisecond);
}

/// A rank in the middle of the world, its shards, and the catalog numbers of their tensors.
struct OneRank {
  int rank;
  std::vector<Source> sources;
  std::vector<plan::MemoryBox> boxes;
  std::vector<std::uint32_t> tensors;

  OneRank(const Job& made, const plan::PackedCatalog& catalog) : rank(made.map.layout().world_size() / 2 + 1) {
    const auto held = made.map.held_by(rank);
    sources = simulate::shards_of<Source>(made.input(), held);
    boxes = planning::memory_boxes(std::span<const Source>(sources));
    tensors = planning::number_tensors(catalog, sources);
  }
};

void plan_describe(benchmark::State& state) {
  const Job& made = job(state.range(0));
  const int ranks = made.map.layout().world_size();
  const OneRank one(made, plan::PackedCatalog(made.stretches));
  require(one.tensors.size() == one.sources.size() && one.sources.size() > 50, "the rank holds next to nothing");
  for (auto _ : state) {
    const auto sources = simulate::shards_of<Source>(made.input(), made.map.held_by(one.rank));
    planning::check_shards(std::span<const Source>(sources));
    benchmark::DoNotOptimize(planning::memory_boxes(std::span<const Source>(sources)));
    benchmark::DoNotOptimize(planning::describe_to_homes({sources}, one.rank, ranks));
  }
}
BENCHMARK(plan_describe)->Apply(both);

void plan_files(benchmark::State& state) {
  const Job& made = job(state.range(0));
  const plan::HfLayout once = made.assign();
  require(once.tensor_bytes() == made.state.bytes && once.files() == made.files, "files do not hold the state");
  for (auto _ : state) benchmark::DoNotOptimize(made.assign());
}
BENCHMARK(plan_files)->Apply(both);

/// The home of an embedding receives claims from every data-parallel and tensor-parallel rank of a stage: here 1,024.
void plan_settle_replicas(benchmark::State& state) {
  const plan::CatalogTensor tensor{"model", "model.embed_tokens.weight", DType::kBF16, {128'256, 16'384}};
  std::vector<plan::Piece> claims;
  for (int rank = 0; rank < 1024; ++rank) {
    const std::uint64_t rows = tensor.shape[0] / 8;
    claims.push_back({1, 0, rank, {{static_cast<std::uint64_t>(rank % 8) * rows, 0}, {rows, tensor.shape[1]}}});
  }
  const auto provided = plan::provide(tensor, claims, 256 << 10, 1);
  std::uint64_t rows = 0;
  for (const plan::Piece& piece : provided) rows += piece.box.shape[0];
  require(provided.size() == 1024 && rows == tensor.shape[0], "the replicas do not share the tensor");
  for (auto _ : state) benchmark::DoNotOptimize(plan::provide(tensor, claims, 256 << 10, 1));
}
BENCHMARK(plan_settle_replicas)->Unit(benchmark::kMillisecond);

/// Finds places and transfers as if the rank had to provide everything that it holds.
void plan_places_and_transfers(benchmark::State& state) {
  const Job& made = job(state.range(0));
  const int ranks = made.map.layout().world_size();
  const plan::HfLayout files = made.assign();
  std::vector<base::Bytes> shares;
  for (int rank = 0; rank < ranks; ++rank) shares.push_back(planning::header_sizes_of_share(files, rank, ranks));
  const auto header_bytes = planning::join_header_sizes(files, shares);
  const OneRank one(made, files.catalog());
  std::vector<plan::Piece> claims = plan::whole_pieces(one.rank, one.boxes);
  for (plan::Piece& claim : claims) claim.tensor = one.tensors[claim.tensor];
  const auto run = [&] {
    plan::FileLayout layout = files.without_content(header_bytes);
    const plan::ExtentMap extents(plan::whole_files(checkpoint::file_sizes(layout.stored)), ranks,
                                  made.options.files.block_bytes);
    std::vector<plan::Piece> pieces = claims;
    const format::StoredCheckpoint places = planning::place_pieces(layout, files, pieces);
    planning::add_headers(layout, files, extents.of(one.rank));
    return plan::transfers_of_memory(pieces, one.boxes, places, extents);
  };
  require(run().size() >= claims.size(), "pieces without transfers");
  for (auto _ : state) benchmark::DoNotOptimize(run());
}
BENCHMARK(plan_places_and_transfers)->Apply(both);

}  // namespace
}  // namespace cairn::micro
