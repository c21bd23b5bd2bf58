// Wiring of `cairn inspect`.
#include "cli/inspect.hpp"

#include <memory>

#include "command.hpp"

namespace cairn::app {

void add_inspect(Subcommand program) {
  Subcommand command = program.add_subcommand("inspect", "What a safetensors file or a checkpoint holds");
  const auto options = std::make_shared<cli::InspectOptions>();
  command
      .option("path", &options->path,
              "A safetensors file, a checkpoint directory, or a root of checkpoints (its newest)")
      .required();
  command.flag("--sections", options->sections, "Only the sections (may be combined with the next three)");
  command.flag("--files", options->files, "Only the data files");
  command.flag("--tensors", options->tensors, "Only the tensors");
  command.flag("--metadata", options->metadata, "Only metadata and carried files");
  command.flag("--all", options->all, "All rows, also on a terminal");
  add_follow_links(command, options->follow_links);
  command.flag("--json", options->json, "Everything as JSON");
  command.footer(
      "Examples:\n"
      "  cairn inspect model.safetensors\n"
      "  cairn inspect runs/a/checkpoint-1000 --files\n"
      "  cairn inspect runs/a --json");
  command.runs([options](cli::Context& context) { return cli::run_inspect(context, *options); });
}

}  // namespace cairn::app
