// Wiring of `cairn demo save` and `cairn demo load`.
#include "cli/demo.hpp"

#include <memory>

#include "command.hpp"

namespace cairn::app {
namespace {

using OptionsPointer = std::shared_ptr<cli::DemoOptions>;

void add_common(Subcommand command, const OptionsPointer& options) {
  command.option("--dir", &options->directory, "Root of checkpoints").required().type_name("DIR");
  command.option("--layers", &options->layers, "Layers of the model, fewer for a quick run").positive().type_name("N");
  add_engine(command, options->checkpointer.engine);
  add_aggregators(command, options->checkpointer.aggregators_per_node);
  add_memory(command, options->checkpointer.memory_budget_bytes);
  command.option("--hint", &options->hints, "A hint for MPI-IO, as key=value; may be repeated")
      .type_name("KEY=VALUE")
      .repeatable();
  command.flag("--json", options->json, "The report as JSON");
}

void add_save(Subcommand demo) {
  Subcommand command = demo.add_subcommand("save", "Make a training state over all ranks and save it");
  const auto options = std::make_shared<cli::DemoOptions>();
  options->checkpointer.max_file_bytes = 500'000'000;
  add_common(command, options);
  command.option("--model", &options->model, "A model by its name, or @config.json [smollm2-135m]").type_name("NAME");
  command.option("--layout", &options->layout, "How the ranks shard it [tp=2,pp=2 on four ranks, else fsdp=N]")
      .type_name("LAYOUT");
  command.option("--step", &options->step, "Training step [100]").type_name("N");
  add_size(command, "--max-file-size", options->checkpointer.max_file_bytes, "Tensor bytes per file");
  add_read_back(command, options->checkpointer.read_back);
  command.flag("--overwrite", options->checkpointer.overwrite, "Replace a checkpoint of the same step");
  command.footer("Example:\n  mpirun -n 4 cairn demo save --dir demo-run --layout tp=2,pp=2");
  command.runs([options](cli::Context& context) { return cli::run_demo_save(context, *options); });
}

void add_load(Subcommand demo) {
  Subcommand command = demo.add_subcommand("load", "Load the newest checkpoint in any layout and check every byte");
  const auto options = std::make_shared<cli::DemoOptions>();
  add_common(command, options);
  command.option("--model", &options->model, "A model by its name, or @config.json [what the checkpoint carries]")
      .type_name("NAME");
  command.option("--layout", &options->layout, "How the ranks shard it [tp=2,pp=2 on four ranks, else fsdp=N]")
      .type_name("LAYOUT");
  command.footer("Example:\n  mpirun -n 3 cairn demo load --dir demo-run --layout fsdp=3");
  command.runs([options](cli::Context& context) { return cli::run_demo_load(context, *options); });
}

}  // namespace

void add_demo(Subcommand program) {
  Subcommand demo =
      program.add_subcommand("demo", "Save the training state of a real model and load it in another layout");
  demo.require_subcommand();
  demo.footer(
      "The state has the true tensors of the model: weights, F32 master weights and two F32 Adam moments. Every value "
      "is\n"
      "a function of section, tensor and element, so that load checks each byte in any layout without the original.\n"
      "Examples:\n"
      "  mpirun -n 4 cairn demo save --dir demo-run\n"
      "  mpirun -n 3 cairn demo load --dir demo-run --layout fsdp=3");
  add_save(demo);
  add_load(demo);
}

}  // namespace cairn::app
