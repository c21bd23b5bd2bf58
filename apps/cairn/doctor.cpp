// Wiring of `cairn doctor`.
#include "cli/doctor.hpp"

#include <memory>

#include "command.hpp"

namespace cairn::app {

void add_doctor(Subcommand program, const std::optional<std::string>& user_mpi_io) {
  Subcommand command = program.add_subcommand("doctor", "What here would lose data, hang or be slow");
  const auto options = std::make_shared<cli::DoctorOptions>();
  options->user_mpi_io = user_mpi_io;
  command.option("path", &options->path, "Where checkpoints are to go");
  command.flag("--json", options->json, "The findings as JSON");
  command.footer(
      "Exit code 1 when something is dangerous. Nothing is changed.\n"
      "Examples:\n"
      "  cairn doctor\n"
      "  srun --mpi=pmix -N 2 cairn doctor runs/a");
  command.runs([options](cli::Context& context) { return cli::run_doctor(context, *options); });
}

}  // namespace cairn::app
