// Benchmarks of the exchange's copy loop, which gathers a region of a stored tensor from a memory box, run by run.
//
// copy_columns copies a shard of columns, 1 to 2,048 bytes wide, into the rows of the whole tensor.
#include <benchmark/benchmark.h>

#include <vector>

#include "check.hpp"
#include "io/copy_runs.hpp"
#include "plan/runs.hpp"

namespace cairn::micro {
namespace {

constexpr std::uint64_t kBytes = 16ULL << 20;  // more than a core's cache
constexpr std::uint64_t kShards = 8;           // number of runs in a row of the tensor

std::byte value_at(std::uint64_t row, std::uint64_t column) { return static_cast<std::byte>(row * 31 + column * 7); }

void copy_all(const plan::Runs& runs, std::byte* file, const std::byte* memory) {
  plan::RunCursor cursor(runs, 0, runs.bytes);
  while (!cursor.done()) {
    const plan::RunBatch batch = cursor.next();
    io::copy_runs({file + batch.file_offset, batch.file_stride}, {memory + batch.memory_offset, batch.memory_stride},
                  batch.length_bytes, batch.count);
  }
}

/// Copies runs of `run_bytes` into a tensor of bytes whose rows have `shards` runs of this length. The copied shard is
/// the second to last, or the only one.
void copy_shard(benchmark::State& state, std::uint64_t run_bytes, std::uint64_t shards) {
  const std::uint64_t rows = kBytes / run_bytes;
  const std::uint64_t first = shards == 1 ? 0 : (shards - 2) * run_bytes;
  const Box stored{{0, 0}, {rows, run_bytes * shards}};
  const Box region{{0, first}, {rows, run_bytes}};
  const plan::Runs runs = plan::runs_of(DType::kU8, {0, 0, stored}, region, region);
  std::vector<std::byte> memory(kBytes);
  for (std::uint64_t i = 0; i < kBytes; ++i) memory[i] = value_at(i / run_bytes, i % run_bytes);
  std::vector<std::byte> file(kBytes * shards);
  copy_all(runs, file.data(), memory.data());
  for (std::uint64_t row = 0; row < rows; row += 997) {
    for (std::uint64_t column = 0; column < run_bytes * shards; ++column) {
      const bool inside = column >= first && column < first + run_bytes;
      const std::byte expected = inside ? value_at(row, column - first) : std::byte{0};
      require(file[row * run_bytes * shards + column] == expected, "a byte was copied to the wrong place");
    }
  }
  for (auto _ : state) {
    copy_all(runs, file.data(), memory.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(kBytes));
}

void copy_rows(benchmark::State& state) { copy_shard(state, 1 << 20, 1); }
BENCHMARK(copy_rows);

void copy_columns(benchmark::State& state) { copy_shard(state, static_cast<std::uint64_t>(state.range(0)), kShards); }
BENCHMARK(copy_columns)->ArgName("run_bytes")->Arg(1)->Arg(2)->Arg(4)->Arg(16)->Arg(2048);

}  // namespace
}  // namespace cairn::micro
