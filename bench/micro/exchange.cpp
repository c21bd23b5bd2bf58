// Benchmarks of one round of the exchange between two ranks, which are threads. "shared": directly into each other's
// windows, as on one node. "messages": cut, packed, sent and copied out, as between nodes.
//
// The tensor is in one file, and each rank writes half of the file. "rows": a rank holds the rows that the other rank
// writes, in runs that need no packing. "columns": a rank holds every second run of each row, so half of its bytes are
// for the other rank ("messages": packed and sent), and the rest are copied.
#include <benchmark/benchmark.h>

#include <chrono>
#include <vector>

#include "check.hpp"
#include "io/exchange.hpp"
#include "plan/transfers.hpp"
#include "simulated.hpp"

namespace cairn::micro {
namespace {

constexpr std::uint64_t kRowBytes = 8192;
constexpr std::uint64_t kRows = 4096;
constexpr std::uint64_t kBytes = kRows * kRowBytes;
constexpr std::uint64_t kBlock = 1 << 20;
constexpr int kGathers = 4;

using Reach = comm::SharedMemory::Reach;

std::byte value_at(std::uint64_t row, std::uint64_t column) { return static_cast<std::byte>(row * 131 + column * 7); }

/// The boxes of a rank: a single box of rows if `run_bytes` is 0, otherwise one box of columns per run.
std::vector<Box> boxes_of(int rank, std::uint64_t run_bytes) {
  const auto r = static_cast<std::uint64_t>(rank);
  if (run_bytes == 0) return {{{(1 - r) * kRows / 2, 0}, {kRows / 2, kRowBytes}}};
  std::vector<Box> boxes;
  for (std::uint64_t column = r * run_bytes; column < kRowBytes; column += 2 * run_bytes) {
    boxes.push_back({{0, column}, {kRows, run_bytes}});
  }
  return boxes;
}

struct RankMemory {
  std::vector<std::vector<std::byte>> content;
  std::vector<plan::MemoryBox> boxes;

  RankMemory(int rank, std::uint64_t run_bytes) {
    for (const Box& box : boxes_of(rank, run_bytes)) {
      std::vector<std::byte> bytes;
      for (std::uint64_t row = 0; row < box.shape[0]; ++row) {
        for (std::uint64_t column = 0; column < box.shape[1]; ++column) {
          bytes.push_back(value_at(box.offset[0] + row, box.offset[1] + column));
        }
      }
      content.push_back(std::move(bytes));
      boxes.push_back({0, box, content.back()});
    }
  }
};

/// Returns the seconds for kGathers gathers. Checks the bytes that arrive.
double gather_on(comm::Communicator& communicator, std::uint64_t run_bytes, Reach reach) {
  const RankMemory memory(communicator.rank(), run_bytes);
  format::StoredCheckpoint stored;
  stored.files.push_back({"file", kBytes});
  stored.tensors.push_back({"model", "t", DType::kU8, {kRows, kRowBytes}, {{0, 0, {{0, 0}, {kRows, kRowBytes}}}}});
  const plan::ExtentMap extents(plan::whole_files(std::vector<std::uint64_t>{kBytes}), communicator.size(), kBlock);
  auto transfers =
      plan::transfers_of_memory(plan::whole_pieces(communicator.rank(), memory.boxes), memory.boxes, stored, extents);
  io::WindowPool pool(communicator, kBytes, reach);
  io::Exchange exchange(communicator, stored.files, extents, kBytes, pool, std::move(transfers), {});
  const io::WindowBuffer window = exchange.window(0);
  require(exchange.rounds() == 1 && window.window->parts.size() == 1, "a window has another shape");
  require(exchange.gather(0, memory.boxes) == window.window->bytes, "bytes are missing");
  const std::uint64_t first = window.window->parts[0].begin;
  for (std::uint64_t i = 0; i < window.window->bytes; i += 61) {
    const std::uint64_t at = first + i;
    require(window.buffer[i] == value_at(at / kRowBytes, at % kRowBytes), "a byte arrived at the wrong place");
  }
  communicator.barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kGathers; ++i) exchange.gather(0, memory.boxes);
  communicator.barrier();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void gather_on_two_ranks(benchmark::State& state, std::uint64_t run_bytes, Reach reach) {
  for (auto _ : state) {
    double seconds = 0;
    comm::run_simulated(2, [&](comm::Communicator& communicator) {
      const double mine = gather_on(communicator, run_bytes, reach);
      if (communicator.rank() == 0) seconds = mine;
    });
    state.SetIterationTime(seconds);
  }
  state.SetBytesProcessed(state.iterations() * kGathers * static_cast<std::int64_t>(kBytes));
}

void exchange_rows(benchmark::State& state, Reach reach) { gather_on_two_ranks(state, 0, reach); }
BENCHMARK_CAPTURE(exchange_rows, shared, Reach::kNode)->UseManualTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(exchange_rows, messages, Reach::kOwn)->UseManualTime()->Unit(benchmark::kMillisecond);

void exchange_columns(benchmark::State& state, Reach reach) {
  gather_on_two_ranks(state, static_cast<std::uint64_t>(state.range(0)), reach);
}
void runs(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseManualTime()->Unit(benchmark::kMillisecond)->ArgName("run_bytes")->Arg(64)->Arg(2048);
}
BENCHMARK_CAPTURE(exchange_columns, shared, Reach::kNode)->Apply(runs);
BENCHMARK_CAPTURE(exchange_columns, messages, Reach::kOwn)->Apply(runs);

}  // namespace
}  // namespace cairn::micro
