// Wiring of `cairn diff`.
#include "cli/diff.hpp"

#include <memory>

#include "command.hpp"

namespace cairn::app {

void add_diff(Subcommand program) {
  Subcommand command = program.add_subcommand("diff", "Which tensors of two checkpoints differ, and by how much");
  const auto options = std::make_shared<cli::DiffCommand>();
  command.option("a", &options->a, "A checkpoint of any dialect").required();
  command.option("b", &options->b, "Another one; file splits and dialects may differ").required();
  add_engine(command, options->options.read.engine);
  add_memory(command, options->options.read.memory_budget_bytes);
  command.option("--rtol", &options->options.tolerance.relative, "Values are close within atol + rtol * |b| [0]")
      .type_name("NUMBER");
  command.option("--atol", &options->options.tolerance.absolute, "Both 0: equal is equal bit for bit [0]")
      .type_name("NUMBER");
  add_paddle_reciprocals(command, options->options.paddle_reciprocals);
  command.flag("--all", options->all, "All rows, also on a terminal");
  add_follow_links(command, options->follow_links);
  command.flag("--json", options->json, "The result as JSON");
  command.footer(
      "Moments that are stored as codes are compared as the F32 values that they stand for.\n"
      "Exit code 0 when every tensor is equal bit for bit, or close where a tolerance is given, 1 when not.\n"
      "Examples:\n"
      "  cairn diff runs/a/checkpoint-1000 export\n"
      "  cairn diff quantised plain --rtol 0.05 --atol 1e-9\n"
      "  mpirun -n 4 cairn diff hf-ckpt dcp --json");
  command.runs([options](cli::Context& context) { return cli::run_diff(context, *options); });
}

}  // namespace cairn::app
