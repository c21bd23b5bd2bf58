// The ranks of a test on MPI.
#pragma once

#include <mpi.h>

namespace cairn::test {

/// This rank and the number of ranks.
struct World {
  explicit World(MPI_Comm communicator = MPI_COMM_WORLD) {
    MPI_Comm_rank(communicator, &rank);
    MPI_Comm_size(communicator, &ranks);
  }
  int rank = 0;
  int ranks = 0;
};

}  // namespace cairn::test
