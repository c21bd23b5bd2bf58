// The clock of a peer, which runs from a barrier to the end of the call on the slowest rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace cairn::peers {

struct Seconds {
  double max = 0;  ///< seconds of the slowest rank
  double min = 0;
};

/// Collective over MPI_COMM_WORLD. Times `work` on each rank, after a barrier.
Seconds timed(const std::function<void()>& work);

/// Rank-local. Syncs a file or a directory. Throws std::system_error naming the path.
void fsync_path(const std::filesystem::path& path);

/// Rank-local: ends the job and names the call if it failed, since the benchmark cannot continue.
void check_mpi(int code, const char* call);

}  // namespace cairn::peers
