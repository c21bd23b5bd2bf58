// Reads what mpirun, mpiexec and srun leave in the environment of what they start.
#include "comm/launcher.hpp"

#include <fmt/core.h>
#include <mpi.h>

#include <cstdlib>
#include <string_view>

#include "cairn/error.hpp"
#include "comm/mpi_call.hpp"

namespace cairn::comm {
namespace {

struct Launcher {
  const char* size;
  const char* rank;
  // A job script runs with SLURM_NTASKS set but is itself one process; inside a step this variable is set as well.
  const char* needs;
};

constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", nullptr}, {"PMI_SIZE", "PMI_RANK", nullptr},
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", nullptr},   {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", nullptr},
    {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_STEP_ID"},
};
/// Launchers of PMIx tell the number of a process by this, and how many there are by PMIx itself only.
constexpr const char* kPmixRank = "PMIX_RANK";

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

}  // namespace

std::optional<LauncherMismatch> launcher_mismatch(int world_size) {
  if (world_size > 1) return std::nullopt;
  for (const Launcher& launcher : kLaunchers) {
    const int started = number_in(launcher.size);
    if (started <= 1 || (launcher.needs != nullptr && std::getenv(launcher.needs) == nullptr)) continue;
    return LauncherMismatch{launcher.size, started, number_in(launcher.rank) == 0};
  }
  // The first process of several cannot be told from one that is alone.
  if (number_in(kPmixRank) > 0) return LauncherMismatch{kPmixRank, 0, false};
  return std::nullopt;
}

std::string describe(const LauncherMismatch& mismatch) {
  return fmt::format(
      "{}={} but MPI sees one rank: every process works alone on the same files; start it with the mpirun of the MPI "
      "library that it was built with (cairn --version names it), or with srun --mpi=pmix",
      mismatch.variable, number_in(mismatch.variable.c_str()));
}

void refuse_lonely_process() {
  int size = 1;
  internal::check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  const auto mismatch = launcher_mismatch(size);
  if (!mismatch) return;
  throw Error(ErrorKind::kUsage, fmt::format("not saved: {}; to save from each process on purpose, to roots of their "
                                             "own, unset {}",
                                             describe(*mismatch), mismatch->variable));
}

}  // namespace cairn::comm
