// One measured save, and one measured load.
#include "bench/runner_parts.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.hpp"
#include "bench/demo_state.hpp"
#include "bench/page_cache.hpp"
#include "bench/shards_of.hpp"
#include "cairn/error.hpp"
#include "checkpoint/verify.hpp"
#include "comm/agree.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "root/root.hpp"

namespace cairn::bench::internal {

// One measured save.

namespace {

// For tests: the fault "bench.saved" flips one bit of the largest saved file.
void damage_when_told(const std::filesystem::path& directory) {
  if (!os::check_fault("bench.saved", directory)) return;
  const auto files = files_in(directory);
  const auto largest = std::max_element(
      files.begin(), files.end(), [](const auto& a, const auto& b) { return os::file_size(a) < os::file_size(b); });
  std::byte bytes[1];
  const std::uint64_t at = os::file_size(*largest) / 2;
  os::File(*largest, os::OpenMode::kRead).read_at(bytes, at);
  bytes[0] ^= std::byte{1};
  os::File file(*largest, os::OpenMode::kWrite);
  file.write_at(bytes, at);
  file.sync();
}

Extras extras_of(const Bench& bench) {
  Extras extras;
  extras.metadata = {{"made_by", "cairn bench"}, {"workload", bench.workload.name}};
  extras.carry_texts["config.json"] = bench.workload.state.config;
  extras.layout = bench.options.save.layout;
  return extras;
}

// Checks every block against the checksums that the save made from memory.
void verify(comm::Communicator& group, const std::filesystem::path& directory, Operation& operation) {
  const checkpoint::VerifyResult result = checkpoint::verify(group, directory);
  if (!result.faults.empty()) throw Error(ErrorKind::kIntegrity, result.faults.front().message);
  operation.verified_bytes = result.bytes;
  operation.verified_by = "verify: the checksum of every block";
}

void save_timed(Bench& bench, comm::Communicator& group, std::uint64_t step, Operation& operation, Sample& sample) {
  const DemoState& state = bench.workload.state;
  std::optional<HeldState> held;
  comm::agree(group, "make the state", [&] {
    held.emplace(state, bench.map_of(bench.options.save), group.rank(), bench.memory);
    held->fill();
  });
  const auto sources = shards_of<Source>(state, *held);
  const Extras extras = extras_of(bench);
  std::unique_ptr<Checkpointer> saver = take_checkpointer(bench, group, bench.saver);
  prepare_memory(bench, group);
  Report report;
  const Rate rate = timed_together(group, state.bytes, [&] { report = saver->save(step, sources, extras); });
  operation.plan_reused = report.plan_reused;
  describe(report, rate, operation, sample);
  if (bench.options.reuse_plan) bench.saver = std::move(saver);
}

// Collective over the world.
Rate raw_write(Bench& bench, RawWay way) {
  bench.raw.prepare(bench.workload.state.bytes, bench.options.save.ranks);
  Rate rate;
  bench.groups.run(bench.options.save.ranks, [&](auto& group) {
    prepare_memory(bench, group);
    rate = bench.raw.write(group, way);
  });
  return rate;
}

// One measured load, and the comparison of every loaded byte.

// Collective over the world: every node drops the files' pages. Returns the largest share that remains on a node.
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
  operation.delivered_bytes = report.bytes;
  describe(report, rate, operation, sample);
  if (os::check_fault("bench.load", bench.root()) && held->bytes() != 0) held->memory_of(0)[0] ^= std::byte{1};
  if (bench.options.reuse_plan) bench.loaders[load] = std::move(loader);
  operation.verified_bytes =
      check_loaded(group, *held, state, fmt::format("load in layout {}", base::printable(operation.layout)));
  operation.verified_by = "every loaded byte compared";
}

// Collective over the world; drops the page cache first if the method uses it.
Rate raw_read(Bench& bench, int ranks, RawWay way) {
  if (bench.raw.is_buffered()) drop_cache(bench, bench.groups.world(), bench.raw.files());
  Rate rate;
  bench.groups.run(ranks, [&](auto& group) { rate = bench.raw.read(group, way); });
  return rate;
}

}  // namespace

void save_once(Bench& bench, std::uint64_t step, Counted counted, Operation& operation) {
  const RunOptions& options = bench.options;
  const auto directory = root::checkpoint_directory(bench.root(), step);
  Sample sample;
  if (counted == Counted::kYes) {
    sample.copied_ceiling = raw_write(bench, RawWay::kCopied);
    sample.ceiling_before = raw_write(bench, RawWay::kPlain);
  }
  bench.groups.run(options.save.ranks, [&](auto& group) { save_timed(bench, group, step, operation, sample); });
  if (counted == Counted::kYes) sample.ceiling_after = raw_write(bench, RawWay::kPlain);
  bench.groups.run(options.save.ranks, [&](auto& group) {
    comm::agree_on_root(group, "damage the checkpoint", 0, [&] { damage_when_told(directory); });
    if (options.loads.empty()) verify(group, directory, operation);
  });
  if (counted == Counted::kYes) operation.samples.push_back(std::move(sample));
}

void load_once(Bench& bench, std::uint64_t step, std::size_t load, Counted counted, Operation& operation) {
  const int ranks = bench.options.loads[load].ranks;
  comm::Communicator& world = bench.groups.world();
  const auto directory = root::checkpoint_directory(bench.root(), step);
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
