// Timing between a barrier and a reduction over the ranks; fsync; checks of MPI calls.
#include "peer_clock.hpp"

#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace cairn::peers {

Seconds timed(const std::function<void()>& work) {
  check_mpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
  const double start = MPI_Wtime();
  work();
  const double mine = MPI_Wtime() - start;
  Seconds out;
  check_mpi(MPI_Allreduce(&mine, &out.max, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD), "MPI_Allreduce");
  check_mpi(MPI_Allreduce(&mine, &out.min, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD), "MPI_Allreduce");
  return out;
}

void fsync_path(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw std::system_error(errno, std::generic_category(), "open " + path.string());
  const int result = ::fsync(file);
  const int error = errno;
  ::close(file);
  if (result != 0) throw std::system_error(error, std::generic_category(), "fsync " + path.string());
}

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::fprintf(stderr, "cairn_peer_program: %s failed with code %d\n", call, code);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

}  // namespace cairn::peers
