// Wiring of `cairn diff`.
#include "cli/diff.hpp"

#include <memory>

#include "command.hpp"

namespace cairn::app {

void add_diff(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("diff", "Which tensors of two checkpoints differ, and by how much");
  const auto options = std::make_shared<cli::DiffCommand>();
  command->add_option("a", options->a, "A checkpoint of any dialect")->required();
  command->add_option("b", options->b, "Another one; file splits and dialects may differ")->required();
  add_engine(*command, options->options.read.engine);
  add_memory(*command, options->options.read.memory_budget_bytes);
  command->add_option("--rtol", options->options.tolerance.relative, "Values are close within atol + rtol * |b| [0]")
      ->type_name("NUMBER");
  command->add_option("--atol", options->options.tolerance.absolute, "Both 0: equal is equal bit for bit [0]")
      ->type_name("NUMBER");
  add_paddle_reciprocals(*command, options->options.paddle_reciprocals);
  command->add_flag("--all", options->all, "All rows, also on a terminal");
  command->add_flag("--json", options->json, "The result as JSON");
  command->footer(
      "Moments that are stored as codes are compared as the F32 values that they stand for.\n"
      "Exit code 0 when every tensor is equal bit for bit, or close where a tolerance is given, 1 when not.\n"
      "Examples:\n"
      "  cairn diff runs/a/checkpoint-1000 export\n"
      "  cairn diff quantised plain --rtol 0.05 --atol 1e-9\n"
      "  mpirun -n 4 cairn diff hf-ckpt dcp --json");
  command->callback(
      [options, &chosen] { chosen = [options](cli::Context& context) { return cli::run_diff(context, *options); }; });
}

}  // namespace cairn::app
