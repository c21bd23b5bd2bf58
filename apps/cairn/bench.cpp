// Wiring of `cairn bench`.
#include "cli/bench.hpp"

#include <memory>

#include "base/units.hpp"
#include "bench/mlperf.hpp"
#include "command.hpp"

namespace cairn::app {
namespace {

using OptionsPointer = std::shared_ptr<cli::BenchOptions>;

std::uint64_t size_of(const std::string& name, const std::string& text) {
  try {
    return base::parse_size(text);
  } catch (const Error& error) {
    throw CLI::ValidationError(name, error.what());
  }
}

void add_workload(CLI::App& command, const OptionsPointer& options) {
  command.add_option("--model", options->model, "A model by its name, or @config.json [smollm2-135m]")
      ->type_name("NAME");
  command.add_option("--layers", options->layers, "Layers of the model")->check(CLI::PositiveNumber)->type_name("N");
  command
      .add_option_function<std::string>(
          "--size", [options](const std::string& text) { options->size_bytes = size_of("--size", text); },
          "A model scaled to about this size instead; with --mlperf, its size")
      ->type_name("SIZE");
  command
      .add_option_function<std::vector<std::string>>(
          "--sweep",
          [options](const std::vector<std::string>& sizes) {
            for (const std::string& text : sizes) options->sweep_bytes.push_back(size_of("--sweep", text));
          },
          "Several sizes in one run: as --size, or of --model with as many layers")
      ->delimiter(',')
      ->type_name("SIZE,SIZE...");
  command.add_option("--mlperf", options->mlperf, "MLPerf Storage's checkpoint of Llama 3, scaled to the ranks")
      ->check(CLI::IsMember(bench::mlperf_names()))
      ->type_name("NAME");
  command.add_option("--sections", options->sections, "all, or a list of model, optimizer, master_weights [all]")
      ->type_name("NAMES");
}

void add_ranks(CLI::App& command, const OptionsPointer& options) {
  command.add_option("--save-ranks", options->save_ranks, "The first so many ranks save [all]")->type_name("N");
  command.add_option("--layout", options->layout, "How they shard the state [tp=2,pp=2 on four ranks, else fsdp=N]")
      ->type_name("LAYOUT");
  command.add_option("--load-ranks", options->load_ranks, "The first so many ranks load, one load after the other")
      ->delimiter(',')
      ->type_name("N,N...");
  command
      .add_option("--load-layouts", options->load_layouts,
                  "Layout of each load, as words of their own [fsdp=N; the save's own when no load is named]")
      ->type_name("LAYOUT LAYOUT...");
  command.add_flag("--no-load", options->no_load, "Measure saves only; each is checked by verify");
}

void add_measuring(CLI::App& command, const OptionsPointer& options) {
  command.add_option("--repeats", options->repeats, "Repeats that count [5]")->type_name("N");
  command.add_option("--warm-up", options->warm_up, "Repeats before, that do not [1]")->type_name("N");
  command.add_flag("--reuse-plan", options->reuse_plan,
                   "Keep plans and buffers from one repeat to the next, as a trainer does");
  command.add_flag("--scattered-memory", options->scattered_memory,
                   "Use free memory in small pages before each call, as a node that runs for long does");
  command.add_flag("--drop-caches", options->drop_caches,
                   "Before each load have every node drop its whole page cache (root), not just that of the files");
  add_size(command, "--request-size", options->raw.request_bytes, "Request of the raw ceilings");
  command.add_option("--in-flight", options->raw.in_flight, "Requests of a rank in flight there [8]")->type_name("N");
}

void add_results(CLI::App& command, const OptionsPointer& options) {
  command.add_flag("--json", options->json, "The record as JSON on standard output instead of tables");
  command.add_option("--record", options->record_file, "Write the record as JSON")->type_name("FILE");
  command.add_option("--csv", options->csv_file, "Write the record as CSV")->type_name("FILE");
  command.add_option("--html", options->html_file, "Write a report with plots")->type_name("FILE");
  command.add_flag("--keep", options->keep, "Leave the directory of the run behind");
}

}  // namespace

void add_bench(CLI::App& app, Command& chosen, const std::string& command_line) {
  CLI::App* command = app.add_subcommand("bench", "Measure saves and loads beside the raw speed of the machine");
  const auto options = std::make_shared<cli::BenchOptions>();
  options->command_line = command_line;
  command->add_option("--dir", options->directory, "A directory on the file system to measure; needs twice the size")
      ->required()
      ->type_name("DIR");
  add_workload(*command, options);
  add_ranks(*command, options);
  add_engine(*command, options->checkpointer.engine);
  add_aggregators(*command, options->checkpointer.aggregators_per_node);
  add_memory(*command, options->checkpointer.memory_budget_bytes);
  add_size(*command, "--max-file-size", options->checkpointer.max_file_bytes, "Tensor bytes per file");
  command->add_option("--hint", options->hints, "A hint for MPI-IO, as key=value; may be repeated")
      ->type_name("KEY=VALUE")
      ->expected(1)
      ->take_all();
  add_measuring(*command, options);
  add_results(*command, options);
  command->footer(
      "Every repeat measures the raw ceiling by the same ranks right before and after, and compares every byte. When "
      "any\n"
      "differs, the exit code is 1 and there is no figure. What each figure means: bench/README.md.\n"
      "Examples:\n"
      "  mpirun -n 4 cairn bench --dir /scratch/me --model llama-3.1-8b --layers 2 --html report.html\n"
      "  mpirun -n 8 cairn bench --dir /scratch/me --size 4GiB --save-ranks 4 --layout tp=2,pp=2 \\\n"
      "    --load-layouts fsdp=3 tp=4,pp=2\n"
      "  mpirun -n 4 cairn bench --dir /scratch/me --sweep 64MiB,256MiB,1GiB --csv sweep.csv");
  command->callback(
      [options, &chosen] { chosen = [options](cli::Context& context) { return cli::run_bench(context, *options); }; });
}

}  // namespace cairn::app
