// `cairn doctor`: finds settings of this machine and environment that cause data loss, hangs or slowness.
//
// Each check examines one thing and changes nothing, except that the check of the shared directory puts a temporary
// file there while all nodes look for it. Checks whose result can differ between nodes run on each node. The facts
// about MPI-IO were measured: src/io/README.md.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cli/output.hpp"
#include "os/limits.hpp"

namespace cairn::cli {

struct DoctorOptions {
  std::filesystem::path path;  ///< directory for checkpoints; empty: file systems are not checked
  bool json = false;
  /// OMPI_MCA_io before this program set it; other programs start with this value.
  std::optional<std::string> user_mpi_io;
  os::OpenFileLimit user_open_files;  ///< limit before this program raised it
};

/// Collective. One rank of each node (or container) checks; rank 0 prints. Returns kExitFailed if a check finds danger.
int run_doctor(Context& context, const DoctorOptions& options);

}  // namespace cairn::cli
