// The record of the environment of a save (Options::environment).
#pragma once

#include <map>
#include <string>

namespace cairn {

/// With `record`, a save carries cairn.environment.json (src/format/FORMAT.md): versions of Cairn, MPI, CUDA, HDF5 and
/// the compiler, the kernel, the file system, hosts (at most 64 names), ranks, ranks per node, and the texts below. The
/// file is off by default because checkpoints are published, and names of hosts with them. Data files do not change.
///
/// A load of a checkpoint with this file compares it with its own environment, whatever `record` is:
/// Report::environment_changes. A difference, or a file that cannot be read, is never an error.
struct EnvironmentOptions {
  bool record = false;
  /// Record the arguments of rank 0's process as well: they may hold secrets. Never compared. kUsage without `record`.
  bool command_line = false;
  std::string git_revision;                   ///< of the program; loads compare it unless it is empty here
  std::map<std::string, std::string> values;  ///< your own, such as {"torch", "2.9.1"}; compared unless empty here
};

}  // namespace cairn
