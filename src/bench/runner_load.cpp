// One measured load, and the comparison of every byte that it brought.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/bytes.hpp"
#include "base/units.hpp"
#include "bench/page_cache.hpp"
#include "bench/runner_parts.hpp"
#include "cairn/error.hpp"
#include "checkpoint/root.hpp"
#include "comm/agree.hpp"
#include "comm/mpi.hpp"
#include "os/fault.hpp"

namespace cairn::bench::internal {
namespace {

constexpr int kUntouched = 0xa5;  // what target memory holds before a load: stale bytes must not pass for loaded ones

// Collective over the world: every node drops the files' pages. The largest share that is left on a node comes back.
double drop_cache(Bench& bench, comm::Communicator& world, const std::vector<std::filesystem::path>& files) {
  double share[] = {0};
  comm::agree(world, "drop the page cache", [&] {
    if (!bench.machine.is_host_leader(world.rank())) return;
    drop_pages(files);
    if (bench.options.drop_all_pages) drop_all_pages();
    share[0] = cached_share(files);
  });
  world.all_reduce(share, comm::ReduceOp::kMax);
  return share[0];
}

std::vector<std::filesystem::path> checkpoint_files(comm::Communicator& world, const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  comm::agree(world, "list the checkpoint", [&] { files = files_in(directory); });
  return files;
}

struct Verdict {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
  std::uint64_t faulty_ranks = 0;
};

Verdict reduce(comm::Communicator& group, const HeldState::Comparison& mine, std::size_t tensors) {
  std::vector<std::uint64_t> seen(tensors, 0);
  for (const std::uint32_t tensor : mine.tensors) seen[tensor] = 1;
  group.all_reduce(seen, comm::ReduceOp::kOr);
  return {static_cast<std::uint64_t>(std::count(seen.begin(), seen.end(), 1U)), group.sum(mine.bytes),
          group.sum(mine.first ? 1 : 0)};
}

void compare(Bench& bench, comm::Communicator& group, const HeldState& held, Operation& operation) {
  const DemoState& state = bench.workload.state;
  HeldState::Comparison mine;
  comm::agree(group, "compare", [&] {
    mine = held.compare();
    if (!mine.first) return;
    throw Error(ErrorKind::kIntegrity,
                fmt::format("load in layout {}: section {}, tensor '{}', element {}: not the value that was saved",
                            base::printable(operation.layout), state.sections[mine.first->tensor],
                            base::printable(state.tensors[mine.first->tensor].name), mine.first->element));
  });
  const Verdict verdict = reduce(group, mine, state.tensors.size());
  if (verdict.tensors != state.tensors.size() || verdict.bytes < state.bytes) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("compared {} of {} tensors, {} of {} bytes: the layout leaves a part of the state on no rank",
                    verdict.tensors, state.tensors.size(), verdict.bytes, state.bytes));
  }
  operation.verified_bytes = verdict.bytes;
  operation.verified_by = "every loaded byte compared";
}

void load_timed(Bench& bench, comm::Communicator& group, std::uint64_t step, const Placement& placement,
                Operation& operation, Sample& sample) {
  const DemoState& state = bench.workload.state;
  std::optional<HeldState> held;
  comm::agree(group, "reserve memory", [&] {
    held.emplace(state, bench.map_of(placement), group.rank());
    for (std::size_t h = 0; h < held->held().size(); ++h) {
      const auto memory = held->memory_of(h);
      std::memset(memory.data(), kUntouched, memory.size());
    }
  });
  const auto targets = shards_of<Target>(state, *held);
  Checkpointer checkpointer(comm::native_handle(group), bench.root(), bench.options.checkpointer);
  Report report;
  const Rate rate = timed_together(group, state.bytes, [&] { report = checkpointer.load(step, targets); });
  sample.seconds = rate.seconds;
  sample.seconds_first = rate.seconds_first;
  sample.phases = report.phases;
  operation.delivered_bytes = report.bytes;
  describe(report, operation);
  if (os::check_fault("bench.load", bench.root()) && held->bytes() != 0) held->memory_of(0)[0] ^= std::byte{1};
  compare(bench, group, *held, operation);
}

}  // namespace

Rate raw_read(Bench& bench, int ranks) {
  if (bench.raw.is_buffered()) drop_cache(bench, bench.groups.world(), bench.raw.files());
  Rate rate;
  bench.groups.run(ranks, [&](auto& group) { rate = bench.raw.read(group); });
  return rate;
}

void load_once(Bench& bench, std::uint64_t step, const Placement& placement, Counted counted, Operation& operation) {
  comm::Communicator& world = bench.groups.world();
  const auto directory = checkpoint::checkpoint_directory(bench.root(), step);
  Sample sample;
  if (counted == Counted::kYes) sample.ceiling_before = raw_read(bench, placement.ranks);
  sample.cached_share = drop_cache(bench, world, checkpoint_files(world, directory));
  bench.groups.run(placement.ranks, [&](auto& group) { load_timed(bench, group, step, placement, operation, sample); });
  if (counted == Counted::kNo) return;
  sample.ceiling_after = raw_read(bench, placement.ranks);
  operation.samples.push_back(std::move(sample));
}

}  // namespace cairn::bench::internal
