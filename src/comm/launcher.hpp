// The launchers' environment variables, and two cases in which they mislead.
//
// A program that was started as N ranks but sees a world of one rank was started by the launcher of a different MPI
// library. Each process then believes that it is alone, and N copies do the same work on the same files.
//
// A program that a rank of an MPI job starts (`cairn`, started by a trainer after a save) inherits the launcher's
// variables of that rank. In MPI_Init the program would pretend to be that rank, and wait for the other ranks for ever.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "os/condition.hpp"

namespace cairn::comm {

struct LauncherMismatch {
  std::string variable;  ///< "OMPI_COMM_WORLD_SIZE" ...
  int started = 0;       ///< number of processes according to the launcher; 0: an unknown number above 1
  bool is_first = true;  ///< whether this process is the launcher's rank 0, which reports the mismatch
};

/// Rank-local; `world_size` is the size of MPI_COMM_WORLD. Nothing for a world of several ranks, or if no launcher
/// claims to have started several processes.
std::optional<LauncherMismatch> launcher_mismatch(int world_size);

/// One line: the problem and the remedy.
std::string describe(const LauncherMismatch& mismatch);

/// Throws Error(kUsage) in a process that wrongly believes that it is alone. MPI must be up.
void refuse_lonely_process();

/// Rank-local, before MPI_Init. Whether a rank of an MPI job has started this process as a separate program, or
/// CAIRN_ALONE asks for a process outside the job. A rank's child is recognised in two ways:
///   - an ancestor of this process that belongs to the same rank has loaded MPI, or (Open MPI 4) has called MPI_Init;
///   - no ancestor has (a script, a trainer without MPI), and no other rank of this node runs this program within 5 s.
///     In this case a warning is logged.
/// Undecidable with one rank on the node, or if the number of its ranks is unknown and no other is left: see SlowStart.
bool is_child_of_rank();

/// Call before MPI_Init and before there are threads. Removes the launcher's variables from the environment, so that
/// this process is a separate job.
void leave_job();

/// Watches MPI_Init, which may take long: logs advice after 30 s, and ends the process after the limit of
/// Watchdog::seconds_from_environment (1,800 s by default; 0: does nothing).
class SlowStart {
 public:
  /// Throws std::system_error when no thread can be started.
  SlowStart();
  ~SlowStart();
  SlowStart(const SlowStart&) = delete;
  SlowStart& operator=(const SlowStart&) = delete;

 private:
  void watch(double limit_s);
  std::mutex mutex_;
  os::Condition changed_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace cairn::comm
