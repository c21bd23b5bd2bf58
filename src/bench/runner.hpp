// Measures a workload: saves and loads through the public Checkpointer, between raw ceilings, and compares every byte.
//
// One repeat, in this order; only what stands in [ ] is timed:
//   [raw write, copied] - [raw write] - make the state - [save] - [raw write] - then for every load: [raw read, copied]
// -
//   [raw read] - drop the page cache, count what is left - [load] - compare - [raw read] - and at last the checkpoint
// is
//   removed.
// Warm-up repeats leave the ceilings out and are not counted. The state's memory is given back before the loads, so
// that a run needs the memory of one state, not of two. A difference anywhere is Error(kIntegrity): there is no figure
// then.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/machine.hpp"
#include "bench/ranks.hpp"
#include "bench/record.hpp"
#include "bench/workload.hpp"

namespace cairn::bench {

/// The first `ranks` ranks of the world, in a layout for as many.
struct Placement {
  int ranks = 0;
  std::string layout;
};

struct RunOptions {
  Options checkpointer;
  Placement save;
  std::vector<Placement> loads;  ///< none: every save is checked by verify instead
  std::uint64_t repeats = 5;
  std::uint64_t warm_up = 1;
  RawOptions raw;
  bool reuse_plan = false;        ///< one Checkpointer for all saves, as a trainer has, and one for each load
  bool drop_all_pages = false;    ///< of the nodes, by root, not of the files alone
  bool scattered_memory = false;  ///< free memory is used in small pages before each call that is timed
  std::filesystem::path work_directory;
  std::function<void(const std::string&)> tell;  ///< called on rank 0 with a line about what was done
};

/// Collective over the world. Throws Error(kUsage) when layout, memory or disk do not fit, Error(kIntegrity) when
/// anything was not read as it was written, and what save and load throw.
Run run_workload(RankGroups& groups, const Machine& machine, const Workload& workload, const RunOptions& options);

/// Collective over the world: the ceilings of memory, by the first `ranks` ranks, `repeats` times each.
MemoryCeilings measure_memory(RankGroups& groups, int ranks, std::uint64_t repeats);

/// A new directory below `parent` for one run, made by rank 0 and removed with the object; kept on request.
class WorkDirectory {
 public:
  /// Collective.
  WorkDirectory(comm::Communicator& world, const std::filesystem::path& parent);
  ~WorkDirectory();
  WorkDirectory(const WorkDirectory&) = delete;
  WorkDirectory& operator=(const WorkDirectory&) = delete;
  void keep();
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool owned_ = false;
};

}  // namespace cairn::bench
