#include "bench/runner.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/checked.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "bench/page_cache.hpp"
#include "bench/runner_parts.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "comm/mpi.hpp"
#include "os/file.hpp"
#include "os/interrupt.hpp"
#include "os/system_calls.hpp"
#include "root/root.hpp"

namespace cairn::bench {
namespace internal {

shard::ShardMap Bench::map_of(const Placement& placement) const {
  const DemoState& state = workload.state;
  return {shard::Layout::from_text(placement.layout), state.model, state.sections, state.tensors};
}

void prepare_memory(const Bench& bench, comm::Communicator& group) {
  std::uint64_t bytes = bench.options.scattered_memory ? bench.options.checkpointer.limits.memory_budget_bytes : 0;
  if (bench.options.raw.method == RawMethod::kMemory) {
    bytes += base::ceil_div(bench.workload.state.bytes, static_cast<std::uint64_t>(group.size()));
  }
  comm::agree(group, "touch free memory", [&] { touch_free_memory(bytes); });
}

std::unique_ptr<Checkpointer> take_checkpointer(const Bench& bench, comm::Communicator& group,
                                                std::unique_ptr<Checkpointer>& place) {
  if (place) return std::move(place);
  Options options = bench.options.checkpointer;
  options.checks.stale = StaleSections::kIgnore;  // every repeat saves the same state
  options.waiting.then = OnSilence::kEndProcess;  // a run is useless if a rank is missing
  return std::make_unique<Checkpointer>(comm::native_handle(group), bench.root(), std::move(options));
}

void describe(const Report& report, const Rate& rate, Operation& operation, Sample& sample) {
  sample.seconds = rate.seconds;
  sample.seconds_first = rate.seconds_first;
  sample.busy_share = rate.busy_share;
  sample.phases = report.phases;
  operation.engine = report.engine;
  operation.engine_reason = report.engine_reason;
  operation.engine_hints = report.engine_hints;
  operation.tensors = report.tensors;
  operation.files = report.files;
}

}  // namespace internal

namespace {

using internal::Bench;
using internal::Counted;

std::uint64_t held_bytes(const Bench& bench, const Placement& placement, int rank) {
  if (rank >= placement.ranks) return 0;
  std::uint64_t bytes = 0;
  for (const shard::HeldTensor& held : bench.map_of(placement).held_by(rank))
    bytes += bytes_of(bench.workload.state, held);
  return bytes;
}

// Bytes of the largest part of a state, or of the raw files, on the rank.
std::uint64_t most_data(const Bench& bench, int rank) {
  const RunOptions& options = bench.options;
  const RawLayout raw(bench.workload.state.bytes, options.save.ranks);
  std::uint64_t most = held_bytes(bench, options.save, rank);
  for (const Placement& load : options.loads) {
    most = std::max(most, held_bytes(bench, load, rank));
    if (rank < load.ranks) most = std::max(most, bytes_to_read(raw.pieces_of(rank, load.ranks)));
  }
  return most;
}

// Peak memory of the rank: the largest part, and buffers.
std::uint64_t peak_bytes(const Bench& bench, int rank) {
  const RunOptions& options = bench.options;
  return most_data(bench, rank) + options.checkpointer.limits.memory_budget_bytes +
         options.raw.request_bytes * options.raw.in_flight;
}

// Collective.
void check_memory(const Bench& bench, comm::Communicator& world) {
  std::uint64_t mine = 0;
  comm::agree(world, "plan the layout", [&] { mine = peak_bytes(bench, world.rank()); });
  bench::check_memory(world, bench.machine, mine, "workload " + base::printable(bench.workload.name),
                      "take fewer --layers, fewer --sections or a smaller --size, or more hosts");
}

// Checkpoint and raw files are on the disk at the same time, so a run needs space for twice the state.
void check_space(const Bench& bench, comm::Communicator& world) {
  comm::agree_on_root(world, "look at the free space", 0, [&] {
    const std::uint64_t free = os::file_system_of(bench.options.work_directory).free_bytes;
    const std::uint64_t needed = bench.workload.state.bytes / 100 * 205;
    if (needed <= free) return;
    throw Error(ErrorKind::kUsage,
                fmt::format("workload {} needs {} of space below '{}', where {} are free",
                            base::printable(bench.workload.name), base::format_size(needed),
                            base::printable(bench.options.work_directory.string()), base::format_size(free)));
  });
}

Operation new_operation(const Bench& bench, Kind kind, const Placement& placement) {
  Operation operation;
  operation.kind = kind;
  operation.ranks = placement.ranks;
  operation.layout = placement.layout;
  operation.bytes = bench.workload.state.bytes;
  operation.ceiling_method = name_of(bench.options.raw.method);
  operation.checkpointer_kept = bench.options.reuse_plan;
  operation.cache_drop_all = bench.options.drop_all_pages && kind == Kind::kLoad;
  return operation;
}

std::string line_of(const Operation& operation, std::uint64_t repeat, std::uint64_t repeats) {
  const Sample& sample = operation.samples.back();
  return fmt::format("repeat {} of {}: {} by {}, {}: {:.3f} s, {:.0f} % of the raw ceiling", repeat, repeats,
                     name_of(operation.kind), base::counted(static_cast<std::uint64_t>(operation.ranks), "rank"),
                     base::printable(operation.layout), sample.seconds, 100 * share_of_ceiling(operation, sample));
}

void label_cache(const Bench& bench, Operation& load) {
  double worst = 0;
  for (const Sample& sample : load.samples) worst = std::max(worst, sample.cached_share);
  load.cache = cache_label(worst, static_cast<double>(load.bytes), static_cast<double>(bench.machine.memory_bytes()));
}

void run_repeat(Bench& bench, Run& run, std::uint64_t step, Counted counted) {
  comm::Communicator& world = bench.groups.world();
  const RunOptions& options = bench.options;
  const std::uint64_t repeat = counted == Counted::kYes ? step - options.warm_up : 0;
  const auto tell = [&](const Operation& operation) {
    if (world.rank() != 0 || counted == Counted::kNo) return;
    options.tell(line_of(operation, repeat, options.repeats));
  };
  internal::save_once(bench, step, counted, run.save);
  tell(run.save);
  for (std::size_t l = 0; l < options.loads.size(); ++l) {
    internal::load_once(bench, step, l, counted, run.loads[l]);
    tell(run.loads[l]);
  }
  if (counted == Counted::kNo && world.rank() == 0) options.tell("warm-up done, not counted");
  comm::agree_on_root(world, "remove the checkpoint", 0, [&] {
    os::remove_tree(root::checkpoint_directory(bench.root(), step));
    os::sync_directory(bench.root());
  });
}

}  // namespace

Run run_workload(RankGroups& groups, const Machine& machine, const Workload& workload, const RunOptions& options) {
  RankMemory memory;
  Bench bench{groups,  machine, workload, options, memory, RawStorage(options.work_directory, options.raw, memory),
              nullptr, {}};
  bench.loaders.resize(options.loads.size());
  check_memory(bench, groups.world());
  check_space(bench, groups.world());
  comm::agree(groups.world(), "reserve memory", [&] { memory.take(most_data(bench, groups.world().rank())); });
  Run run;
  run.workload = workload.name;
  run.note = workload.note;
  run.save = new_operation(bench, Kind::kSave, options.save);
  for (const Placement& load : options.loads) run.loads.push_back(new_operation(bench, Kind::kLoad, load));
  const std::uint64_t all = options.warm_up + options.repeats;
  for (std::uint64_t step = 1; step <= all; ++step) {
    run_repeat(bench, run, step, step > options.warm_up ? Counted::kYes : Counted::kNo);
  }
  for (Operation& load : run.loads) label_cache(bench, load);
  if (!run.loads.empty()) {
    run.save.verified_bytes = run.loads.front().verified_bytes;
    run.save.verified_by = "every byte compared after it was loaded";
  }
  comm::agree_on_root(groups.world(), "remove the raw files", 0, [&] {
    for (const auto& path : bench.raw.files()) os::remove_tree(path);
  });
  return run;
}

MemoryCeilings measure_memory(RankGroups& groups, int ranks, std::uint64_t repeats) {
  MemoryCeilings out;
  groups.run(ranks, [&](comm::Communicator& group) {
    for (std::uint64_t repeat = 0; repeat < repeats; ++repeat) {
      out.memcpy.push_back(memcpy_ceiling(group));
      out.crc.push_back(crc_ceiling(group));
      if (ranks > 1) out.exchange.push_back(exchange_ceiling(group));
    }
  });
  return out;
}

WorkDirectory::WorkDirectory(comm::Communicator& world, const std::filesystem::path& parent) {
  std::string name;
  comm::agree_on_root(world, "make a directory for the run", 0, [&] {
    os::make_directory(parent);
    name = (std::filesystem::absolute(parent) / "cairn-bench-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) os::throw_system_error("making", name, errno);
  });
  world.share(name, 0);
  path_ = name;
  if (world.rank() == 0) os::remove_at_end(path_);
  owned_ = world.rank() == 0;
}

void WorkDirectory::keep() {
  owned_ = false;
  os::keep_at_end(path_);
}

WorkDirectory::~WorkDirectory() {
  if (!owned_) return;
  try {
    os::remove_tree(path_);
    os::keep_at_end(path_);
  } catch (const std::exception& error) {
    base::log_warning(fmt::format("the directory of the run is left behind: {}", error.what()));
  }
}

}  // namespace cairn::bench
