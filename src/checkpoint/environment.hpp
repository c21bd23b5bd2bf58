// The environment that a save records and a load compares (Options::environment; format/environment.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cairn/environment.hpp"
#include "comm/communicator.hpp"
#include "format/environment.hpp"
#include "opening/open.hpp"

namespace cairn::checkpoint {

inline constexpr std::uint64_t kEnvironmentTextBytes = 64ULL << 10;  ///< texts of the program

/// Rank-local. `directory`: a path on the storage of the checkpoints, which need not exist.
format::Environment environment_of(const comm::Communicator& communicator, const EnvironmentOptions& options,
                                   const std::filesystem::path& directory);

/// Rank-local: format::environment_lines() of the save; a file that cannot be read is a line. No line without the file.
std::vector<std::string> environment_of_save(const opening::OpenCheckpoint& opened);

/// Rank-local: lines for Report::environment_changes, on rank 0. No line without the file. A file that cannot be read
/// is a line.
std::vector<std::string> environment_changes_since(const comm::Communicator& communicator,
                                                   const opening::OpenCheckpoint& opened,
                                                   const EnvironmentOptions& options);

}  // namespace cairn::checkpoint
