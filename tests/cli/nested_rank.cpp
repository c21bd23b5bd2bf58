// A rank of an MPI job that runs a command, as a trainer does after a save: nested_rank COMMAND [ARGUMENT...]. Rank 0
// waits for the command, and ends with its exit code; the other ranks wait for rank 0.
#include <mpi.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

int main(int argc, char** argv) {
  int rank = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  int code = 0;
  if (rank == 0 && argc > 1) {
    pid_t child = 0;
    int status = 0;
    code = 99;
    if (posix_spawnp(&child, argv[1], nullptr, nullptr, argv + 1, environ) == 0 &&
        waitpid(child, &status, 0) == child && WIFEXITED(status)) {
      code = WEXITSTATUS(status);
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return code;
}
