// A program that was started as N ranks but sees a world of one was started by the launcher of another MPI library.
//
// Each process then believes that it is alone: N copies do the same work on the same files. The environment that
// launchers leave behind tells.
#pragma once

#include <optional>
#include <string>

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

}  // namespace cairn::comm
