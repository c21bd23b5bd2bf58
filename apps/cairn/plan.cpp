// Wiring of `cairn plan`.
#include "cli/plan.hpp"

#include <memory>

#include "command.hpp"

namespace cairn::app {

void add_plan(Subcommand program) {
  Subcommand command =
      program.add_subcommand("plan", "What saving a model costs each rank of a layout, without any ranks");
  const auto options = std::make_shared<cli::PlanOptions>();
  command.option("--model", &options->model, "A model by its name, or @config.json").required().type_name("NAME");
  command.option("--layout", &options->layout, "How the ranks shard it: 'tp=8,pp=16,dp=128,zero=1', or @file.json")
      .required()
      .type_name("LAYOUT");
  command.option("--sections", &options->sections, "model, optimizer, master_weights, several with commas [all]")
      .type_name("LIST");
  command.option("--layers", &options->layers, "Layers of the model, fewer for a quick run").positive().type_name("N");
  add_size(command, "--max-file-size", options->checkpointer.max_file_bytes, "Tensor bytes per file");
  add_size(command, "--align", options->checkpointer.align_bytes, "Data sections begin on multiples of this");
  add_size(command, "--block", options->checkpointer.block_bytes, "Checksum unit");
  add_memory(command, options->checkpointer.memory_budget_bytes);
  add_wish(command, "--stripe", options->stripe_bytes, "Stripe of the file system: how many have more than one writer");
  add_wish(command, "--bandwidth", options->bandwidth_bytes_per_second,
           "Of the file system per second ('100GiB/s'): how long writing takes");
  command.option("--ranks-sampled", &options->ranks_sampled, "Ranks whose planning is measured, or all [32]")
      .type_name("N");
  command.flag("--json", options->json, "The figures as JSON");
  command.footer(
      "Every rank is planned for in this process, with the planner of a real save; time and heap are measured on a\n"
      "sample. The state is weights, F32 master weights and two F32 Adam moments, under the model's own names.\n"
      "Examples:\n"
      "  cairn plan --model llama-3.1-405b --layout tp=8,pp=16,dp=128,zero=1,uneven --bandwidth 100GiB/s\n"
      "  cairn plan --model deepseek-v3 --layout pp=16,dp=128,ep=64,zero=1,uneven --stripe 4MiB --json");
  command.runs([options](cli::Context& context) { return cli::run_plan(context, *options); });
}

}  // namespace cairn::app
