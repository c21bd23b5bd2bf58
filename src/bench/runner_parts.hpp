// Declarations that runner.cpp and runner_parts.cpp share. For this folder only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "bench/ranks.hpp"
#include "bench/runner.hpp"
#include "shard/shard_map.hpp"

namespace cairn::bench::internal {

struct Bench {
  RankGroups& groups;
  const Machine& machine;
  const Workload& workload;
  const RunOptions& options;
  RankMemory& memory;  ///< memory for states and raw data
  RawStorage raw;
  // Kept between repeats with RunOptions::reuse_plan; null on ranks that do not take part.
  std::unique_ptr<Checkpointer> saver;
  std::vector<std::unique_ptr<Checkpointer>> loaders;  ///< one for each of RunOptions::loads

  [[nodiscard]] std::filesystem::path root() const { return options.work_directory / "checkpoints"; }
  [[nodiscard]] shard::ShardMap map_of(const Placement& placement) const;
};

enum class Counted { kNo, kYes };

/// Collective over the world. Makes one save between raw ceilings; adds the sample to `operation` if it counts.
void save_once(Bench& bench, std::uint64_t step, Counted counted, Operation& operation);
/// As save_once(), for load number `load` of RunOptions::loads.
void load_once(Bench& bench, std::uint64_t step, std::size_t load, Counted counted, Operation& operation);

/// Collective over the group: the Checkpointer kept in `place`, or a new one if `place` is empty.
std::unique_ptr<Checkpointer> take_checkpointer(const Bench& bench, comm::Communicator& group,
                                                std::unique_ptr<Checkpointer>& place);

/// Collective; call before timed work, except raw reads. Touches free memory: as much as the rank's share of the files
/// if the file system is in memory, and as much as its budget for buffers with RunOptions::scattered_memory.
void prepare_memory(const Bench& bench, comm::Communicator& group);

/// Copies the results that saves and loads have in common.
void describe(const Report& report, const Rate& rate, Operation& operation, Sample& sample);

}  // namespace cairn::bench::internal
