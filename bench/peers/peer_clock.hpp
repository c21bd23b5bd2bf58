// The clock of a peer: from a barrier to the end of the call, the slowest rank counts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace cairn::peers {

struct Seconds {
  double max = 0;  ///< of the slowest rank
  double min = 0;
};

/// Collective over MPI_COMM_WORLD.
Seconds timed(const std::function<void()>& work);

/// Rank-local. Throws std::system_error naming the path. A directory may be named as well.
void fsync_path(const std::filesystem::path& path);

/// Rank-local: ends the job, saying what failed. An MPI call that fails here has no good way on.
void check_mpi(int code, const char* call);

}  // namespace cairn::peers
