// Reads what mpirun, mpiexec and srun leave in the environment of what they start.
#include "cli/launcher.hpp"

#include <fmt/core.h>

#include <cstdlib>
#include <string_view>

namespace cairn::cli {
namespace {

struct Launcher {
  const char* size;
  const char* rank;
  // A job script runs with SLURM_NTASKS set but is itself one process; inside a step this variable is set as well.
  const char* needs;
};

constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", nullptr},
    {"PMI_SIZE", "PMI_RANK", nullptr},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", nullptr},
    {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_STEP_ID"},
};

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
  return std::nullopt;
}

std::string describe(const LauncherMismatch& mismatch) {
  return fmt::format(
      "{}={} but MPI sees one rank: every process works alone on the same files; start cairn with the mpirun of the "
      "MPI "
      "library it was built with (cairn --version names it), or with srun --mpi=pmix",
      mismatch.variable, mismatch.started);
}

}  // namespace cairn::cli
