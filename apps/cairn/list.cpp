// Wiring of `cairn ls`.
#include "cli/list.hpp"

#include <memory>

#include "command.hpp"

namespace cairn::app {

void add_list(Subcommand program) {
  Subcommand command =
      program.add_subcommand("ls", "The checkpoints of a run, complete or not, and what conversions left unfinished");
  const auto options = std::make_shared<cli::ListOptions>();
  command.option("root", &options->root, "The directory that holds checkpoint-<step> directories").required();
  command.flag("--json", options->json, "The list as JSON");
  command.footer(
      "Examples:\n"
      "  cairn ls runs/a\n"
      "  cairn ls runs/a --json");
  command.runs([options](cli::Context& context) { return cli::run_list(context, *options); });
}

}  // namespace cairn::app
