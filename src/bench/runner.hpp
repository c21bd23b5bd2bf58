// Measures a workload: saves and loads through the public Checkpointer, between raw ceilings, and compares every byte.
//
// One repeat; only steps in [ ] are timed:
//   1  [raw write, copied], [raw write]
//   2  make the state, [save]
//   3  [raw write]
//   4  for each load:
//      a  [raw read, copied], [raw read]
//      b  drop the page cache, count the remaining pages
//      c  [load], compare
//      d  [raw read]
//   5  remove the checkpoint
// Warm-up repeats leave the ceilings out and do not count. Loads reuse the memory of the saved state, so a run needs
// memory for only one state. Any difference is Error(kIntegrity), and the run gives no figures.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bench/machine.hpp"
#include "bench/ranks.hpp"
#include "bench/record.hpp"
#include "bench/workload.hpp"

namespace cairn::bench {

/// The first `ranks` ranks of the world, and a layout for them.
struct Placement {
  int ranks = 0;
  std::string layout;
};

struct RunOptions {
  Options checkpointer;
  Placement save;
  std::vector<Placement> loads;  ///< empty: verify checks every save instead
  std::uint64_t repeats = 5;
  std::uint64_t warm_up = 1;
  RawOptions raw;
  bool reuse_plan = false;        ///< one Checkpointer for all saves, as in a trainer, and one for each load
  bool drop_all_pages = false;    ///< as root, drop all pages of the nodes instead of only the files' pages
  bool scattered_memory = false;  ///< use free memory in small pages before each save, load and raw write
  std::filesystem::path work_directory;
  std::function<void(const std::string&)> tell;  ///< called on rank 0 with a line of progress
};

/// Collective over the world. Throws Error(kUsage) if the layout is wrong, or memory or disk space is short;
/// Error(kIntegrity) if a byte differs; and the errors of save and load.
Run run_workload(RankGroups& groups, const Machine& machine, const Workload& workload, const RunOptions& options);

/// Collective over the world: the ceilings of memory on the first `ranks` ranks, `repeats` times each.
MemoryCeilings measure_memory(RankGroups& groups, int ranks, std::uint64_t repeats);

/// A new directory in `parent` for one run, made by rank 0 and removed by the destructor unless keep() was called.
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
