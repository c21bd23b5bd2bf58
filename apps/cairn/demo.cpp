// Options of `cairn demo save` and `cairn demo load`.
#include "cli/demo.hpp"

#include <memory>

#include "bench/workload.hpp"
#include "command.hpp"
#include "shard/model.hpp"

namespace cairn::app {
namespace {

using OptionsPointer = std::shared_ptr<cli::DemoOptions>;

void add_common(Subcommand command, const OptionsPointer& options) {
  command.option("--dir", &options->directory, "Root of checkpoints").required().type_name("DIR");
  command.option("--layers", &options->layers, "Layers of the model, fewer for a quick run")
      .positive()
      .at_most(bench::kMostLayers)
      .type_name("N");
  add_engine(command, options->checkpointer.engine.name, options->hints);
  add_aggregators(command, options->checkpointer.engine.aggregators_per_node);
  add_memory(command, options->checkpointer.limits.memory_budget_bytes);
  add_quiet(command);
  command.flag("--json", options->json, "The report as JSON");
}

/// Options that say which tensors are saved, and which files are taken from an earlier checkpoint.
void add_content(Subcommand command, const OptionsPointer& options) {
  command
      .option("--section", &options->select.sections,
              "Save only tensors of sections like this, e.g. model, as a part of a state; may be repeated")
      .type_name("PATTERN")
      .repeatable();
  command
      .option("--name", &options->select.names,
              "Save only tensors whose names are like this, e.g. '*norm*', as a part of a state; may be repeated")
      .type_name("PATTERN")
      .repeatable();
  command.flag("--no-save-optim", options->checkpointer.no_save_optim, "Leave out section optimizer");
  command
      .option("--base", &options->base,
              "With --section, --name or --no-save-optim: a step, or the path of the checkpoint that has the others")
      .type_name("TEXT");
  command
      .option("--frozen", &options->frozen,
              "Sections like this do not change between saves, and have files of their own; may be repeated")
      .type_name("PATTERN")
      .repeatable();
  command
      .option("--reuse", &options->reuse,
              "Take unchanged files of --frozen from the newest checkpoint: reflink shares storage (XFS, Btrfs), "
              "hard-link also names files twice")
      .one_of({"reflink", "hard-link"})
      .type_name("SHARING");
  command.no_effect({"--base"}, "on a whole state: give --section, --name or --no-save-optim", [options] {
    const Selection& select = options->select;
    return select.sections.empty() && select.names.empty() && !options->checkpointer.no_save_optim;
  });
  command.no_effect({"--frozen"}, "without --reuse", [options] { return options->reuse.empty(); });
  command.no_effect({"--reuse"}, "without --frozen", [options] { return options->frozen.empty(); });
}

void add_save(Subcommand demo) {
  Subcommand command = demo.add_subcommand("save", "Make a training state over all ranks and save it");
  const auto options = std::make_shared<cli::DemoOptions>();
  options->checkpointer.files.max_bytes = 500'000'000;
  add_common(command, options);
  command.option("--model", &options->model, "A model by its name, or @config.json [smollm2-135m]")
      .type_name("NAME")
      .offers(shard::model_names());
  command.option("--layout", &options->layout, "How the ranks shard it [tp=2,pp=2 on four ranks, else fsdp=N]")
      .type_name("LAYOUT");
  command.option("--step", &options->step, "Training step [100]").type_name("N");
  add_content(command, options);
  add_size(command, "--max-file-size", options->checkpointer.files.max_bytes, "Tensor bytes per file");
  add_read_back(command, options->checkpointer.read_back);
  add_access(command, options->checkpointer.files);
  command.flag("--overwrite", options->checkpointer.overwrite, "Replace a checkpoint of the same step");
  command.flag("--environment", options->checkpointer.environment.record, "Record versions, hosts and ranks with it");
  command.footer("Example:\n  mpirun -n 4 cairn demo save --dir demo-run --layout tp=2,pp=2");
  command.runs([options](cli::Context& context) { return cli::run_demo_save(context, *options); });
}

void add_load(Subcommand demo) {
  Subcommand command = demo.add_subcommand("load", "Load the newest checkpoint in any layout and check every byte");
  const auto options = std::make_shared<cli::DemoOptions>();
  add_common(command, options);
  command.option("--model", &options->model, "A model by its name, or @config.json [what the checkpoint carries]")
      .type_name("NAME")
      .offers(shard::model_names());
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
