// Options of `cairn bench`.
#include "cli/bench.hpp"

#include <fmt/core.h>

#include <memory>

#include "base/text.hpp"
#include "bench/workload.hpp"
#include "cli/arguments.hpp"
#include "command.hpp"
#include "os/process.hpp"
#include "shard/model.hpp"

namespace cairn::app {
namespace {

using OptionsPointer = std::shared_ptr<cli::BenchOptions>;

constexpr std::uint64_t kMostRepeats = 1'000'000;
constexpr std::uint64_t kMostInFlight = 1024;

void add_workload(Subcommand command, const OptionsPointer& options) {
  command.option("--model", &options->model, "A model by its name, or @config.json [smollm2-135m]")
      .type_name("NAME")
      .offers(shard::model_names());
  command.option("--layers", &options->layers, "Layers of the model")
      .positive()
      .at_most(bench::kMostLayers)
      .type_name("N");
  command
      .option(
          "--size", [options](const std::string& text) { options->size_bytes = cli::size_in(text); },
          "A model scaled to about this size instead; with --mlperf, its size")
      .type_name("SIZE");
  command
      .option(
          "--sweep",
          [options](const std::vector<std::string>& sizes) {
            for (const std::string& text : sizes) options->sweep_bytes.push_back(cli::size_in(text));
          },
          "Several sizes in one run: as --size, or of --model with as many layers")
      .split_at(',')
      .type_name("SIZE,SIZE...");
  command.option("--mlperf", &options->mlperf, "MLPerf Storage's checkpoint of Llama 3, scaled to the ranks")
      .one_of(bench::mlperf_names())
      .type_name("NAME");
  command.option("--sections", &options->sections, "all, or a list of model, optimizer, master_weights [all]")
      .lists(',')
      .type_name("NAMES")
      .offers({"all", "model", "optimizer", "master_weights"});
}

void add_ranks(Subcommand command, const OptionsPointer& options) {
  command.option("--save-ranks", &options->save_ranks, "Number of ranks that save, from rank 0 on [all]")
      .positive()
      .type_name("N");
  command.option("--layout", &options->layout, "How they shard the state [tp=2,pp=2 on four ranks, else fsdp=N]")
      .type_name("LAYOUT");
  command.option("--load-ranks", &options->load_ranks, "Numbers of ranks that load, one load after the other")
      .split_at(',')
      .positive()
      .type_name("N,N...");
  command
      .option("--load-layouts", &options->load_layouts,
              "Layout of each load, as separate words [fsdp=N; the save's own when no load is named]")
      .type_name("LAYOUT LAYOUT...");
  command.flag("--no-load", options->no_load, "Measure saves only; each is checked by verify");
  command.no_effect({"--drop-caches"}, "with --no-load: it is for loads", [options] { return options->no_load; });
}

/// Adds an option for a list of processors, which is refused if it is not one.
void add_cores(Subcommand command, const std::string& name, std::string& cores, const std::string& help) {
  const auto take = [&cores](const std::string& list) {
    (void)os::cores_of(list);
    cores = list;
  };
  command.option(name, take, help).type_name("LIST");
}

void add_async(Subcommand command, const OptionsPointer& options) {
  command.flag("--async", options->async,
               "Measure asynchronous saves instead: what they cost a program, beside a copy of its memory");
  add_cores(command, "--async-cores", options->checkpointer.async.cores, "Processors for what is behind it [all]");
  add_cores(command, "--program-cores", options->program_cores, "Processors for the program's steps [all]");
  command.no_effect({"--async-cores", "--program-cores"}, "without --async", [options] { return !options->async; });
  command.no_effect({"--sweep", "--save-ranks", "--load-ranks", "--load-layouts", "--no-load", "--reuse-plan",
                     "--scattered-memory", "--drop-caches", "--request-size", "--in-flight", "--csv", "--html"},
                    "with --async", [options] { return options->async; });
}

void add_measuring(Subcommand command, const OptionsPointer& options) {
  command.option("--repeats", &options->repeats, "Repeats that count [5]")
      .positive()
      .at_most(kMostRepeats)
      .type_name("N");
  command.option("--warm-up", &options->warm_up, "Warm-up repeats, which do not count [1]")
      .at_most(kMostRepeats)
      .type_name("N");
  command.flag("--reuse-plan", options->reuse_plan,
               "Keep plans and buffers from one repeat to the next, as a trainer does");
  command.flag("--scattered-memory", options->scattered_memory,
               "Use free memory in small pages before each call, as a node that runs for long does");
  command.flag("--drop-caches", options->drop_caches,
               "Before each load have every node drop its whole page cache (root), not just that of the files");
  command
      .option(
          "--request-size",
          [options](const std::string& text) { options->raw.request_bytes = cli::request_size_in(text); },
          fmt::format("Request of the raw ceilings [{}]", base::format_size(options->raw.request_bytes)))
      .type_name("SIZE");
  command.option("--in-flight", &options->raw.in_flight, "Requests of a rank in flight there [8]")
      .positive()
      .at_most(kMostInFlight)
      .type_name("N");
}

void add_results(Subcommand command, const OptionsPointer& options) {
  add_quiet(command, "the figures");
  command.flag("--json", options->json, "The record as JSON on standard output instead of tables");
  command.option("--record", &options->record_file, "Write the record as JSON").type_name("FILE");
  command.option("--csv", &options->csv_file, "Write the record as CSV").type_name("FILE");
  command.option("--html", &options->html_file, "Write a report with plots").type_name("FILE");
  command.flag("--keep", options->keep, "Leave the directory of the run behind");
}

}  // namespace

void add_bench(Subcommand program, const std::string& command_line) {
  Subcommand command = program.add_subcommand("bench", "Measure saves and loads beside the raw speed of the machine");
  const auto options = std::make_shared<cli::BenchOptions>();
  options->command_line = command_line;
  command.option("--dir", &options->directory, "A directory on the file system to measure; needs twice the size")
      .required()
      .type_name("DIR");
  add_workload(command, options);
  add_ranks(command, options);
  add_engine(command, options->checkpointer.engine.name, options->hints);
  add_aggregators(command, options->checkpointer.engine.aggregators_per_node);
  add_memory(command, options->checkpointer.limits.memory_budget_bytes);
  add_size(command, "--max-file-size", options->checkpointer.files.max_bytes, "Tensor bytes per file");
  add_read_back(command, options->checkpointer.read_back);
  add_async(command, options);
  add_measuring(command, options);
  add_results(command, options);
  command.footer(
      "Every repeat measures the raw ceiling by the same ranks right before and after, and compares every byte. When "
      "any\n"
      "differs, the exit code is 1 and there is no figure. What each figure means: bench/README.md.\n"
      "Examples:\n"
      "  mpirun -n 4 cairn bench --dir /scratch/me --model llama-3.1-8b --layers 2 --html report.html\n"
      "  mpirun -n 8 cairn bench --dir /scratch/me --size 4GiB --save-ranks 4 --layout tp=2,pp=2 \\\n"
      "    --load-layouts fsdp=3 tp=4,pp=2\n"
      "  mpirun -n 4 cairn bench --dir /scratch/me --sweep 64MiB,256MiB,1GiB --csv sweep.csv");
  command.runs([options](cli::Context& context) { return cli::run_bench(context, *options); });
}

}  // namespace cairn::app
