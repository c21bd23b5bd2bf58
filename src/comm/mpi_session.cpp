// The process's MPI life time, and its end by force.
#include <fmt/core.h>

#include <cstdlib>
#include <exception>
#include <string>

#include "base/log.hpp"
#include "cairn/error.hpp"
#include "comm/mpi.hpp"
#include "comm/mpi_call.hpp"

namespace cairn::comm {

MpiSession::MpiSession(int& argc, char**& argv) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0) {
    MPI_Query_thread(&thread_level_);
  } else {
    prefer_romio();
    const int code = MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &thread_level_);
    if (code != MPI_SUCCESS) throw Error(ErrorKind::kIo, fmt::format("MPI_Init_thread failed with code {}", code));
    owned_ = true;
  }
  int rank = 0;
  int size = 1;
  internal::check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
  internal::check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  base::set_log_rank(rank, size);
}

MpiSession::~MpiSession() {
  if (!owned_ || !internal::mpi_is_up()) return;
  // MPI_Finalize waits for all ranks; one that is here by an exception may be alone.
  if (std::uncaught_exceptions() > 0) MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Finalize();
}

void abort_job(int exit_code) {
  if (internal::mpi_is_up()) MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

}  // namespace cairn::comm
