// One measured save.
#include <fmt/core.h>

#include <algorithm>

#include "bench/page_cache.hpp"
#include "bench/runner_parts.hpp"
#include "cairn/error.hpp"
#include "checkpoint/verify.hpp"
#include "comm/agree.hpp"
#include "directory/root.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"

namespace cairn::bench::internal {
namespace {

// For tests: the fault "bench.saved" turns one bit of the largest file that was just saved.
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

// Every block against the table that was made from memory while it was written.
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
  sample.seconds = rate.seconds;
  sample.seconds_first = rate.seconds_first;
  sample.busy_share = rate.busy_share;
  sample.phases = report.phases;
  operation.plan_reused = report.plan_reused;
  describe(report, operation);
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

}  // namespace

void save_once(Bench& bench, std::uint64_t step, Counted counted, Operation& operation) {
  const RunOptions& options = bench.options;
  const auto directory = checkpoint::checkpoint_directory(bench.root(), step);
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

}  // namespace cairn::bench::internal
