// One measured load, and the comparison of every byte that it brought.
#include <fmt/core.h>

#include "base/units.hpp"
#include "bench/demo_verdict.hpp"
#include "bench/page_cache.hpp"
#include "bench/runner_parts.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "directory/root.hpp"
#include "os/fault.hpp"

namespace cairn::bench::internal {
namespace {

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

void compare(Bench& bench, comm::Communicator& group, const HeldState& held, Operation& operation) {
  const DemoState& state = bench.workload.state;
  HeldState::Comparison mine;
  comm::agree(group, "compare", [&] {
    mine = held.compare();
    if (!mine.first) return;
    throw Error(ErrorKind::kIntegrity, fmt::format("load in layout {}: {}", base::printable(operation.layout),
                                                   bench::describe(*mine.first, state)));
  });
  const Verdict verdict = reduce(group, mine, state.tensors.size());
  check_completeness(verdict, state);
  operation.verified_bytes = verdict.bytes;
  operation.verified_by = "every loaded byte compared";
}

void load_timed(Bench& bench, comm::Communicator& group, std::uint64_t step, std::size_t load, Operation& operation,
                Sample& sample) {
  const DemoState& state = bench.workload.state;
  const Placement& placement = bench.options.loads[load];
  std::optional<HeldState> held;
  comm::agree(group, "make the memory", [&] {
    held.emplace(state, bench.map_of(placement), group.rank(), bench.memory);
    held->overwrite();
  });
  const auto targets = shards_of<Target>(state, *held);
  std::unique_ptr<Checkpointer> loader = take_checkpointer(bench, group, bench.loaders[load]);
  prepare_memory(bench, group);
  Report report;
  const Rate rate = timed_together(group, state.bytes, [&] { report = loader->load(step, targets); });
  sample.seconds = rate.seconds;
  sample.seconds_first = rate.seconds_first;
  sample.busy_share = rate.busy_share;
  sample.phases = report.phases;
  operation.delivered_bytes = report.bytes;
  describe(report, operation);
  if (os::check_fault("bench.load", bench.root()) && held->bytes() != 0) held->memory_of(0)[0] ^= std::byte{1};
  if (bench.options.reuse_plan) bench.loaders[load] = std::move(loader);
  compare(bench, group, *held, operation);
}

// Collective over the world, with the page cache dropped where it goes through it.
Rate raw_read(Bench& bench, int ranks, RawWay way) {
  if (bench.raw.is_buffered()) drop_cache(bench, bench.groups.world(), bench.raw.files());
  Rate rate;
  bench.groups.run(ranks, [&](auto& group) { rate = bench.raw.read(group, way); });
  return rate;
}

}  // namespace

void load_once(Bench& bench, std::uint64_t step, std::size_t load, Counted counted, Operation& operation) {
  const int ranks = bench.options.loads[load].ranks;
  comm::Communicator& world = bench.groups.world();
  const auto directory = checkpoint::checkpoint_directory(bench.root(), step);
  Sample sample;
  if (counted == Counted::kYes) {
    sample.copied_ceiling = raw_read(bench, ranks, RawWay::kCopied);
    sample.ceiling_before = raw_read(bench, ranks, RawWay::kPlain);
  }
  sample.cached_share = drop_cache(bench, world, checkpoint_files(world, directory));
  bench.groups.run(ranks, [&](auto& group) { load_timed(bench, group, step, load, operation, sample); });
  if (counted == Counted::kNo) return;
  sample.ceiling_after = raw_read(bench, ranks, RawWay::kPlain);
  operation.samples.push_back(std::move(sample));
}

}  // namespace cairn::bench::internal
