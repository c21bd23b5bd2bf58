// What launchers leave in the environment, and when it misleads.
//
// A program that was started as N ranks but sees a world of one was started by the launcher of another MPI library. Each
// process then believes that it is alone: N copies do the same work on the same files.
//
// A program that a rank of an MPI job starts (a trainer that runs `cairn` after a save) inherits what the launcher told
// that rank. In MPI_Init it would pass for the rank once more, and wait for the others for ever.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "os/condition.hpp"

namespace cairn::comm {

struct LauncherMismatch {
  std::string variable;  ///< "OMPI_COMM_WORLD_SIZE" ...
  int started = 0;       ///< processes that the launcher says it started; 0: several
  bool is_first = true;  ///< this process is the launcher's number 0, which is to tell of it
};

/// Rank-local; `world_size` is the size of MPI_COMM_WORLD. Nothing when the world has more than one rank or no launcher
/// claims several.
std::optional<LauncherMismatch> launcher_mismatch(int world_size);

/// One line: what was found and what to do.
std::string describe(const LauncherMismatch& mismatch);

/// Throws Error(kUsage) in a process that only believes to be alone. Requires: MPI is up.
void refuse_lonely_process();

/// Rank-local, before MPI_Init: whether a rank of an MPI job has started this process for itself, or CAIRN_ALONE asks for
/// a process on its own. A process above this one, in the environment of the same rank, has an MPI library loaded; or it
/// has none (a script, a trainer that needs no MPI), and no other rank of this node runs this program within 5 s, which a
/// warning tells. With one rank a node, or where nobody says how many there are and none is left, that cannot be told,
/// and SlowStart helps.
bool is_child_of_rank();

/// Before MPI_Init, and before there are threads: takes out of the environment what a launcher has put there, so that
/// this process is a job of its own.
void leave_job();

/// While it lives, MPI_Init may take long: says so once, with what to do, and ends the process after the limit that
/// Watchdog::seconds_from_environment gives.
class SlowStart {
 public:
  /// Throws std::system_error when there can be no more threads.
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
