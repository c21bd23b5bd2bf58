// `cairn doctor`: what on this machine and in this environment would lose data, hang or be slow.
//
// A check looks at one thing and changes nothing, but for an empty file that is in the directory for checkpoints while
// all nodes look for it. What nodes may differ in is looked at on each of them. Facts about MPI-IO were measured: src/io/README.md.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/output.hpp"
#include "os/limits.hpp"

namespace cairn::cli {

struct DoctorOptions {
  std::filesystem::path path;  ///< where checkpoints are to go; empty: file systems are not looked at
  bool json = false;
  /// OMPI_MCA_io as it was before this program set it for itself: other programs start with this.
  std::optional<std::string> user_mpi_io;
  os::OpenFileLimit user_open_files;  ///< before this program raised it for itself, in the same way
};

enum class Level { kGood, kNote, kWarning, kDanger };
const char* name_of(Level level);

struct Check {
  std::string name;  ///< "mpi-io", "semaphores", "launcher", "file system" ...
  Level level = Level::kGood;
  std::string finding;                  ///< one line
  std::string remedy;                   ///< one line, what to do; empty when nothing
  std::vector<std::string> hosts = {};  ///< of which it holds; empty: of all, or of the job
};

// Rank-local checks.
Check check_mpi_io();
Check check_mpi_io_of_others(const std::optional<std::string>& user_mpi_io);
Check check_semaphores(const std::filesystem::path& shared_memory);
Check check_launcher(int world_size);
Check check_io_uring();
Check check_limits(const os::OpenFileLimit& open_files);
Check check_cuda();
/// The path, or the nearest directory above it that exists. Throws Error(kUsage) where that is no directory.
std::vector<Check> check_file_system(const std::filesystem::path& path);

/// What several hosts found, each in the same order, one after the other: what is the same is said once.
std::vector<Check> join_checks(const std::vector<std::vector<Check>>& of_hosts);

/// Collective; one rank of each node works, and rank 0 speaks. kExitFailed when a check finds danger.
int run_doctor(Context& context, const DoctorOptions& options);

}  // namespace cairn::cli
