#include "shared_temp_dir.hpp"

#include <limits.h>
#include <mpi.h>

#include <array>
#include <cstring>
#include <stdexcept>

#include "temp_dir.hpp"

namespace cairn::test {

SharedTempDir::SharedTempDir() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::array<char, PATH_MAX> name{};
  if (rank == 0) {
    try {
      std::strncpy(name.data(), make_temp_directory().c_str(), name.size() - 1);
    } catch (const std::exception&) {
      name[0] = '\0';  // broadcast, so that all ranks throw
    }
  }
  MPI_Bcast(name.data(), static_cast<int>(name.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  if (name[0] == '\0') {
    throw std::runtime_error("rank 0 cannot make a temporary directory below its current directory");
  }
  path_ = name.data();
}

SharedTempDir::~SharedTempDir() {
  MPI_Barrier(MPI_COMM_WORLD);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) {
    remove_temp_directory(path_);
  }
}

}  // namespace cairn::test
