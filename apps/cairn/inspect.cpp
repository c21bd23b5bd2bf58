// Wiring of `cairn inspect`.
#include "cli/inspect.hpp"

#include <memory>

#include "command.hpp"

namespace cairn::app {

void add_inspect(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("inspect", "What a safetensors file or a checkpoint holds");
  const auto options = std::make_shared<cli::InspectOptions>();
  command
      ->add_option("path", options->path,
                   "A safetensors file, a checkpoint directory, or a root of checkpoints (its newest)")
      ->required();
  command->add_flag("--sections", options->sections, "Only the sections (may be combined with the next three)");
  command->add_flag("--files", options->files, "Only the data files");
  command->add_flag("--tensors", options->tensors, "Only the tensors");
  command->add_flag("--metadata", options->metadata, "Only metadata and carried files");
  command->add_flag("--all", options->all, "All rows, also on a terminal");
  command->add_flag("--json", options->json, "Everything as JSON");
  command->footer(
      "Examples:\n"
      "  cairn inspect model.safetensors\n"
      "  cairn inspect runs/a/checkpoint-1000 --files\n"
      "  cairn inspect runs/a --json");
  command->callback([options, &chosen] {
    chosen = [options](cli::Context& context) { return cli::run_inspect(context, *options); };
  });
}

}  // namespace cairn::app
