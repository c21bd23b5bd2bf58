// `cairn doctor`: finds settings of this machine and environment that lose data, hang or are slow.
//
// A check examines one thing and changes nothing, except for an empty file in the directory for checkpoints while all
// nodes look for it. Checks whose result may differ by node run on each of them.
// The facts about MPI-IO were measured: src/io/README.md.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/output.hpp"
#include "os/limits.hpp"

namespace cairn::cli {

struct DoctorOptions {
  std::filesystem::path path;  ///< directory for checkpoints; empty: file systems are not checked
  bool json = false;
  /// OMPI_MCA_io before this program set it for itself: other programs start with this value.
  std::optional<std::string> user_mpi_io;
  os::OpenFileLimit user_open_files;  ///< before this program raised it for itself
};

enum class Level { kGood, kNote, kWarning, kDanger };
const char* name_of(Level level);

struct Check {
  std::string name;  ///< "mpi-io", "semaphores", "launcher", "file system" ...
  Level level = Level::kGood;
  std::string finding;                  ///< one line
  std::string remedy;                   ///< one line; empty: nothing to do
  std::vector<std::string> hosts = {};  ///< with this finding; empty: all, or the job
};

// Rank-local checks.
Check check_mpi_io();
Check check_mpi_io_of_others(const std::optional<std::string>& user_mpi_io);
Check check_semaphores(const std::filesystem::path& shared_memory);
Check check_launcher(int world_size);
Check check_io_uring();
Check check_limits(const os::OpenFileLimit& open_files);
Check check_cuda();
/// Checks the path, or the nearest existing directory above it. Throws Error(kUsage) if that is not a directory.
std::vector<Check> check_file_system(const std::filesystem::path& path);

/// Joins the checks of several hosts: equal findings appear once, and checks of one name follow each other.
std::vector<Check> join_checks(const std::vector<std::vector<Check>>& of_hosts);

/// Collective; one rank of each node works, and rank 0 prints. kExitFailed when a check finds danger.
int run_doctor(Context& context, const DoctorOptions& options);

}  // namespace cairn::cli
