// The environment of a save, cairn.environment.json: FORMAT.md, "The environment". Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cairn::format {

inline constexpr const char* kEnvironmentFile = "cairn.environment.json";
inline constexpr int kEnvironmentVersion = 1;
inline constexpr std::size_t kEnvironmentHosts = 64;  ///< names of hosts in the file

/// Empty texts: there is no such thing, or it is unknown.
struct Environment {
  std::string tool;  ///< "cairn 0.1.0"
  std::string mpi;   ///< first line of MPI_Get_library_version
  std::string cuda;  ///< of the build: "13.0"
  std::string nvidia_driver;
  std::string hdf5;
  std::string compiler;     ///< "GCC 12.2.0"
  std::string kernel;       ///< "Linux 6.1.0 x86_64"
  std::string file_system;  ///< of the root: "ext4"
  std::uint64_t ranks = 0;
  std::uint64_t nodes = 0;
  std::uint64_t fewest_ranks_per_node = 0;
  std::uint64_t most_ranks_per_node = 0;
  std::vector<std::string> hosts;  ///< the first of `nodes`, in order of rank
  std::string git_revision;
  std::map<std::string, std::string> values;
  std::vector<std::string> command_line;

  bool operator==(const Environment&) const = default;
};

/// With an end of line. Bytes that are not UTF-8 become U+FFFD.
std::string encode_environment(const Environment& environment);

/// Throws Error(kFormat) naming `path` for anything else than an object of a known version. Keys that are unknown, or
/// have another type, are ignored.
Environment parse_environment(std::string_view text, std::string_view path);

/// A line for each thing that is known: "MPI library: Open MPI v4.1.4".
std::vector<std::string> environment_lines(const Environment& environment);

/// A line for each difference: "MPI library: saved with Open MPI v4.1.4, now MPICH 4.0". The texts of the program are
/// compared only where `now` has any; the command line is not compared.
std::vector<std::string> environment_changes(const Environment& saved, const Environment& now);

}  // namespace cairn::format
