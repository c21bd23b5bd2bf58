// Runs a benchmark and prints its results.
#include "cli/bench.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <span>
#include <string_view>
#include <utility>

#include "base/bytes.hpp"
#include "base/text.hpp"
#include "bench/async_runner.hpp"
#include "bench/record.hpp"
#include "bench/record_document.hpp"
#include "bench/runner.hpp"
#include "bench/workload.hpp"
#include "cairn/error.hpp"
#include "cli/arguments.hpp"
#include "cli/json_output.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"
#include "os/file.hpp"
#include "os/process.hpp"
#include "shard/layout.hpp"

namespace cairn::cli {
namespace {

constexpr const char* kDefaultModel = "smollm2-135m";

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorKind::kUsage, what); }

void check_combination(const BenchOptions& options) {
  const bool has_model = !options.model.empty();
  if (!options.mlperf.empty() && (has_model || options.layers || !options.sweep_bytes.empty())) {
    fail("--mlperf chooses the model itself: do not give --model, --layers or --sweep with it");
  }
  if (options.size_bytes && (has_model || options.layers || !options.sweep_bytes.empty())) {
    fail("--size makes a model of that size: do not give --model, --layers or --sweep with it");
  }
  if (options.layers && !options.sweep_bytes.empty())
    fail("--sweep chooses the layers itself: do not give --layers with it");
  if (!options.sweep_bytes.empty() && options.model.starts_with('@')) {
    fail("--sweep takes a --model by its name, not a config.json");
  }
}

bench::Workload workload_of_model(Context& context, const BenchOptions& options,
                                  const std::vector<std::string>& sections) {
  const std::string model = options.model.empty() ? kDefaultModel : options.model;
  bench::Workload out{model, "", demo_state(context.communicator, model, options.layers)};
  if (options.layers) out.note = fmt::format("{} of its layers", *options.layers);
  bench::keep_sections(out.state, sections);
  return out;
}

int ranks_of_layout(const std::string& layout) { return shard::Layout::from_text(layout).world_size(); }

void check_ranks(const Context& context, int ranks, std::string_view option) {
  if (ranks >= 1 && ranks <= context.communicator.size()) return;
  fail(fmt::format("{} wants {} ranks, {} run; start cairn with mpirun -n {}", option, ranks,
                   context.communicator.size(), ranks));
}

// The placement for a layout. Throws Error(kUsage) if its number of ranks is not `ranks`, or more than are running.
bench::Placement placement(Context& context, const std::string& layout, std::optional<int> ranks,
                           std::string_view option) {
  const std::string text = layout_text(context.communicator, layout);
  const int needed = ranks_of_layout(text);
  if (ranks && *ranks != needed) {
    fail(fmt::format("{}: layout {} is for {} ranks, not for {}", option, base::printable(text), needed, *ranks));
  }
  check_ranks(context, needed, option);
  return {needed, text};
}

/// Collective. One workload, or one for each size of a sweep. Throws Error(kUsage) for contradictory options.
std::vector<bench::Workload> bench_workloads(Context& context, const BenchOptions& options) {
  check_combination(options);
  const std::vector<std::string> sections = bench::parse_sections(options.sections);
  std::vector<bench::Workload> workloads;
  if (!options.mlperf.empty()) {
    const int ranks = options.save_ranks.value_or(context.communicator.size());
    workloads.push_back(bench::mlperf_workload(options.mlperf, ranks, options.size_bytes, sections));
  } else if (options.size_bytes) {
    workloads.push_back(bench::sized_workload(*options.size_bytes, sections));
  } else if (!options.sweep_bytes.empty()) {
    for (const std::uint64_t bytes : options.sweep_bytes) {
      workloads.push_back(options.model.empty() ? bench::sized_workload(bytes, sections)
                                                : bench::layered_workload(options.model, bytes, sections));
    }
  } else {
    workloads.push_back(workload_of_model(context, options, sections));
  }
  return workloads;
}

/// Collective. Ranks and layout of the save; bench_loads() gives those of each load. Both throw Error(kUsage) for a
/// layout that does not match the number of ranks, or needs more ranks than are running.
bench::Placement bench_save(Context& context, const BenchOptions& options) {
  const int ranks = options.save_ranks.value_or(context.communicator.size());
  check_ranks(context, ranks, "--save-ranks");
  if (!options.layout.empty()) {
    // A layout for fewer ranks than are running is most likely a mistake, unless --save-ranks asks for that number.
    return placement(context, options.layout, ranks, "--layout");
  }
  if (!options.mlperf.empty()) return {ranks, bench::mlperf_layout(options.mlperf, ranks)};
  return {ranks, ranks == 4 ? "tp=2,pp=2" : fmt::format("fsdp={}", ranks)};
}

std::vector<bench::Placement> bench_loads(Context& context, const BenchOptions& options, const bench::Placement& save) {
  if (options.no_load) {
    if (!options.load_ranks.empty() || !options.load_layouts.empty())
      fail("--no-load contradicts the loads that are named");
    return {};
  }
  const std::size_t layouts = options.load_layouts.size();
  if (layouts != 0 && !options.load_ranks.empty() && options.load_ranks.size() != layouts) {
    fail(fmt::format("--load-ranks names {} loads, --load-layouts {}", options.load_ranks.size(), layouts));
  }
  std::vector<bench::Placement> loads;
  for (std::size_t l = 0; l < layouts; ++l) {
    const auto ranks = options.load_ranks.empty() ? std::nullopt : std::optional<int>(options.load_ranks[l]);
    loads.push_back(placement(context, options.load_layouts[l], ranks, "--load-layouts"));
  }
  if (layouts == 0) {
    for (const int ranks : options.load_ranks) {
      check_ranks(context, ranks, "--load-ranks");
      loads.push_back({ranks, fmt::format("fsdp={}", ranks)});
    }
  }
  if (loads.empty()) loads.push_back(save);
  return loads;
}

using bench::Kind;
using bench::Operation;
using bench::Summary;

constexpr double kGiB = 1073741824.0;

std::string spread(const Summary& summary, double unit, int digits) {
  return fmt::format("{:.{}f} ({:.{}f}-{:.{}f})", summary.median / unit, digits, summary.min / unit, digits,
                     summary.max / unit, digits);
}

std::string percents(const Summary& summary) {
  return fmt::format("{:.0f} % ({:.0f}-{:.0f})", 100 * summary.median, 100 * summary.min, 100 * summary.max);
}

std::string operation_table(const bench::Run& run) {
  Table table({"operation", ">ranks", "layout", "engine", ">seconds", ">first rank", ">GiB/s", ">raw GiB/s",
               ">share of raw", ">of raw, copied", ">processors busy", "cache"});
  for (const Operation* one : operations_of(run)) {
    const Operation& operation = *one;
    table.add({std::string(name_of(operation.kind)), std::to_string(operation.ranks), base::printable(operation.layout),
               operation.engine, spread(seconds_of(operation), 1, 3),
               fmt::format("{:.3f}", first_seconds_of(operation).median), spread(rate_of(operation), kGiB, 2),
               spread(ceiling_of(operation), kGiB, 2), percents(bench::share_of_ceiling(operation)),
               percents(bench::share_of_copied_ceiling(operation)),
               fmt::format("{:.0f} %, raw {:.0f} %", 100 * busy_of(operation).median,
                           100 * ceiling_busy_of(operation).median),
               operation.kind == Kind::kSave ? "fsynced" : operation.cache});
  }
  return table.text();
}

std::string phase_table(const Operation& operation) {
  Table table({"phase", ">seconds", ">first rank", ">share", ">bytes", ">GiB/s"});
  for (const std::string& phase : phases_of(operation)) {
    const Summary seconds = phase_seconds(operation, phase);
    const std::uint64_t bytes = phase_bytes(operation, phase);
    const double rate = seconds.median > 0 ? static_cast<double>(bytes) / seconds.median / kGiB : 0;
    table.add({base::printable(phase), spread(seconds, 1, 3),
               fmt::format("{:.3f}", phase_first_seconds(operation, phase).median),
               fmt::format("{:.1f} %", 100 * phase_share(operation, phase).median),
               bytes == 0 ? "-" : group_digits(bytes), bytes == 0 ? "-" : fmt::format("{:.2f}", rate)});
  }
  return table.text();
}

std::string memory_line(const bench::MemoryCeilings& memory) {
  std::string out = fmt::format("memory ceilings, GiB/s: memcpy {}, CRC-32C {}",
                                spread(rates_of(memory.memcpy), kGiB, 1), spread(rates_of(memory.crc), kGiB, 1));
  if (!memory.exchange.empty()) out += fmt::format(", MPI exchange {}", spread(rates_of(memory.exchange), kGiB, 1));
  return out;
}

std::string run_text(const bench::Run& run) {
  std::string out = fmt::format("\nworkload {}: {} ({}), sections {}, {} in {}\n", base::printable(run.workload),
                                counted(run.save.bytes, "byte"), base::format_size(run.save.bytes), run.sections,
                                counted(run.save.tensors, "tensor"), counted(run.save.files, "file"));
  if (!run.note.empty()) out += run.note + "\n";
  out += "engine " + base::printable(engine_text(run.save), 1000) + "\n";
  out += operation_table(run);
  const std::vector<const Operation*> operations = operations_of(run);
  for (const Operation* operation : operations) {
    if (const std::string note = size_note(*operation); !note.empty()) out += "\nnote: " + note;
  }
  for (const Operation* operation : operations) {
    out += fmt::format("\n\n{} by {}, {}; verified: {}\n{}", name_of(operation->kind),
                       counted(static_cast<std::uint64_t>(operation->ranks), "rank"),
                       base::printable(operation->layout), operation->verified_by, phase_table(*operation));
  }
  return out;
}

/// The record as text for a terminal or a job log, without a newline at the end.
std::string bench_text(const bench::Record& record) {
  const bench::Machine& machine = record.machine;
  std::string out =
      fmt::format("{} on {}, {}, {} of {}; {}\n", counted(static_cast<std::uint64_t>(record.ranks), "rank"),
                  counted(machine.hosts.size(), "host"), base::printable(machine.processor), machine.mount.type,
                  base::printable(machine.mount.source),
                  base::printable(machine.mpi_library.substr(0, machine.mpi_library.find(','))));
  if (!machine.job.empty()) out += base::printable(machine.job) + "\n";
  out += fmt::format("median (minimum-maximum) of {} after {} of warm-up; raw: {}, requests of {}, {} in flight\n",
                     counted(record.repeats, "repeat"), record.warm_up, name_of(record.raw.method),
                     base::format_size(record.raw.request_bytes), record.raw.in_flight);
  out += memory_line(record.memory) + "\n";
  for (const bench::Run& run : record.runs) out += run_text(run) + "\n";
  out.pop_back();
  return out;
}

/// Prints progress of a long run on standard error, unless the output is quiet; standard output is for results.
std::function<void(const std::string&)> teller(const Output& output) {
  if (output.is_quiet()) return [](const std::string&) {};
  return [](const std::string& line) { fmt::print(stderr, "cairn bench: {}\n", one_line(line)); };
}

bench::RunOptions run_options(Context& context, const BenchOptions& options) {
  bench::RunOptions out;
  out.checkpointer = options.checkpointer;
  out.checkpointer.engine.hints = parse_hints(options.hints);
  out.checkpointer.run_id = "bench";
  out.save = bench_save(context, options);
  out.loads = bench_loads(context, options, out.save);
  out.repeats = options.repeats;
  out.warm_up = options.warm_up;
  out.raw = options.raw;
  out.reuse_plan = options.reuse_plan;
  out.drop_all_pages = options.drop_caches;
  out.scattered_memory = options.scattered_memory;
  out.tell = teller(context.output);
  return out;
}

// Collective: rank 0 tries the methods in the directory; all ranks use its choice.
bench::RawMethod agreed_raw_method(comm::Communicator& communicator, const std::filesystem::path& directory) {
  std::uint64_t method[] = {0};
  comm::agree_on_root(communicator, "try raw I/O", 0,
                      [&] { method[0] = static_cast<std::uint64_t>(bench::find_raw_method(directory)); });
  communicator.broadcast(std::as_writable_bytes(std::span(method)), 0);
  return static_cast<bench::RawMethod>(method[0]);
}

bench::Record new_record(const BenchOptions& options, const Context& context) {
  bench::Record record;
  record.command_line = options.command_line;
  record.directory = options.directory.string();
  record.ranks = context.communicator.size();
  record.repeats = options.repeats;
  record.warm_up = options.warm_up;
  record.engine_asked = options.checkpointer.engine.name;
  record.aggregators_per_node = options.checkpointer.engine.aggregators_per_node;
  record.memory_budget_bytes = options.checkpointer.limits.memory_budget_bytes;
  record.max_file_bytes = options.checkpointer.files.max_bytes;
  record.read_back = options.checkpointer.read_back;
  return record;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  if (!path.empty()) os::replace_file(path, base::as_bytes(text));
}

// Collective. The directory must exist: a wrong path would otherwise be made, and another disk be measured.
void check_directory(Context& context, const BenchOptions& options) {
  comm::agree_on_root(context.communicator, "look at --dir", 0, [&] {
    require_directory(options.directory, ": name one that exists, on the file system to be measured", ErrorKind::kUsage,
                      "--dir ");
  });
}

// Throws if a result cannot be written to `path`. Leaves an existing file unchanged.
void try_file(const char* option, const std::filesystem::path& path) {
  if (path.empty()) return;
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorKind::kUsage, fmt::format("{} {}: {}", option, os::shown(path), why));
  };
  if (std::filesystem::is_directory(path)) fail("it is a directory; name a file in it");
  try {
    std::filesystem::path name = path.filename();
    name += ".tmp-" + os::random_nonce();
    os::refresh_directory(path.has_parent_path() ? path.parent_path() : ".", name);
  } catch (const Error& error) {
    fail(error.what());
  }
}

// Collective. Called before the measurement, which can take an hour, so that a bad path is reported at once.
void try_results(Context& context, const BenchOptions& options) {
  comm::agree_on_root(context.communicator, "try where the results go", 0, [&] {
    try_file("--record", options.record_file);
    try_file("--csv", options.csv_file);
    try_file("--html", options.html_file);
  });
}

base::Json document_of(const bench::Record& record) {
  base::Json document = json_document("bench");
  document.update(bench::record_json(record));
  return document;
}

// Collective. No result is printed or written earlier, so a failed run leaves no figures.
void publish(Context& context, const BenchOptions& options, const bench::Record& record) {
  comm::agree_on_root(context.communicator, "write the results", 0, [&] {
    const base::Json document = document_of(record);
    write_file(options.record_file, document.dump({.indent = 2, .is_lenient = true}) + "\n");
    write_file(options.csv_file, bench::record_csv(record));
    write_file(options.html_file, bench::html_report(record));
    if (options.json) {
      print_json(context.output, document);
    } else {
      context.output.line(bench_text(record));
    }
  });
}

struct AsyncFigure {
  const char* key;
  const char* words;
  double (*of)(const bench::AsyncSample& sample);
  const char* ratio;  ///< words for the ratio of `of` to `base`; null: no ratio
  double (*base)(const bench::AsyncSample& sample);
};
constexpr AsyncFigure kAsyncFigures[] = {
    {"memcpy", "copy of the snapshot's bytes", [](const auto& s) { return s.memcpy; }, nullptr, nullptr},
    {"stall", "save_async, until it returns", [](const auto& s) { return s.stall; }, "of the copy",
     [](const auto& s) { return s.memcpy; }},
    {"stall_plan", "... of that, for the plan", [](const auto& s) { return s.stall_plan; }, nullptr, nullptr},
    {"stall_copy", "... of that, for the copy", [](const auto& s) { return s.stall_copy; }, "of the other copy",
     [](const auto& s) { return s.memcpy; }},
    {"save", "save, the program waits", [](const auto& s) { return s.save; }, nullptr, nullptr},
    {"behind", "asynchronous save, the program sleeps", [](const auto& s) { return s.behind; }, "of the save",
     [](const auto& s) { return s.save; }},
    {"busy", "asynchronous save, the program works", [](const auto& s) { return s.busy; }, "of the save",
     [](const auto& s) { return s.save; }},
    {"step", "a step, while nothing is saved", [](const auto& s) { return s.step; }, nullptr, nullptr},
    {"busy_step", "a step, while a save is under way", [](const auto& s) { return s.busy_step; }, "of the other",
     [](const auto& s) { return s.step; }},
};

template <class Of>
Summary summary_of(const bench::AsyncRun& run, const Of& of) {
  std::vector<double> values;
  for (const bench::AsyncSample& sample : run.samples) values.push_back(of(sample));
  return bench::summarise(std::move(values));
}

Summary ratios_of(const bench::AsyncRun& run, const AsyncFigure& figure) {
  return summary_of(run, [&](const auto& sample) { return figure.of(sample) / figure.base(sample); });
}

std::string async_text(const bench::AsyncRun& run) {
  Table table({"seconds of the slowest rank", ">median (range)", ">ratio", "of what"});
  for (const AsyncFigure& figure : kAsyncFigures) {
    const bool has_ratio = figure.ratio != nullptr;
    table.add({figure.words, spread(summary_of(run, figure.of), 1, 4),
               has_ratio ? spread(ratios_of(run, figure), 1, 3) : "", has_ratio ? figure.ratio : ""});
  }
  return fmt::format(
      "asynchronous saves of {}, {}, layout {}, engine {}: {} repeats; {} loaded from the last save and compared\n{}\n"
      "the first one kept the program {:.3f} s, {:.3f} s of that to make a pool of {} a rank for snapshots",
      base::printable(run.workload), base::format_size(run.state_bytes), base::printable(run.layout), run.engine,
      run.samples.size(), base::format_size(run.verified_bytes), table.text(), run.first_stall, run.prepare,
      base::format_size(run.pool_bytes));
}

base::Json async_document(const bench::AsyncRun& run, const bench::Machine& machine, const BenchOptions& options) {
  base::Json document = json_document("bench");
  document["command_line"] = options.command_line;
  document["tool"] = machine.tool;
  document["revision"] = machine.revision;
  document["date"] = machine.date;
  document["processor"] = machine.processor;
  document["mpi_library"] = machine.mpi_library;
  document["workload"] = run.workload;
  document["layout"] = run.layout;
  document["engine"] = run.engine;
  document["size_bytes"] = run.state_bytes;
  document["snapshot_bytes"] = run.snapshot_bytes;
  document["pool_bytes"] = run.pool_bytes;
  document["verified_bytes"] = run.verified_bytes;
  document["first_stall_seconds"] = run.first_stall;
  document["first_prepare_seconds"] = run.prepare;
  document["steps"] =
      bench::summary_json(summary_of(run, [](const auto& sample) { return static_cast<double>(sample.steps); }));
  base::Json seconds = base::Json::object();
  base::Json ratios = base::Json::object();
  for (const AsyncFigure& figure : kAsyncFigures) {
    seconds[figure.key] = bench::summary_json(summary_of(run, figure.of));
    if (figure.ratio != nullptr) ratios[figure.key] = bench::summary_json(ratios_of(run, figure));
  }
  document["seconds_max"] = std::move(seconds);
  document["ratios"] = std::move(ratios);
  return document;
}

/// Collective: `cairn bench --async`.
int run_async_bench(Context& context, const BenchOptions& options) {
  bench::AsyncRunOptions how;
  how.checkpointer = options.checkpointer;
  how.checkpointer.engine.hints = parse_hints(options.hints);
  how.checkpointer.run_id = "bench";
  how.layout = bench_save(context, options).layout;
  how.repeats = options.repeats;
  how.warm_up = options.warm_up;
  how.program_cores = options.program_cores;
  how.tell = teller(context.output);
  bench::WorkDirectory work(context.communicator, options.directory);
  if (options.keep) work.keep();
  how.directory = work.path() / "checkpoints";
  const bench::Machine machine = bench::describe_machine(context.communicator, work.path());
  for (const bench::Workload& workload : bench_workloads(context, options)) {
    const bench::AsyncRun run = bench::measure_async(context.communicator, workload, how);
    comm::agree_on_root(context.communicator, "write the results", 0, [&] {
      const base::Json document = async_document(run, machine, options);
      write_file(options.record_file, document.dump({.indent = 2, .is_lenient = true}) + "\n");
      if (options.json) return print_json(context.output, document);
      context.output.line(async_text(run));
    });
  }
  return kExitGood;
}

}  // namespace

int run_bench(Context& context, const BenchOptions& options) {
  check_directory(context, options);
  try_results(context, options);
  if (options.async) return run_async_bench(context, options);
  const std::vector<bench::Workload> workloads = bench_workloads(context, options);
  bench::RunOptions run = run_options(context, options);
  bench::Record record = new_record(options, context);
  bench::WorkDirectory work(context.communicator, options.directory);
  if (options.keep) work.keep();
  run.work_directory = work.path();
  run.raw.method = agreed_raw_method(context.communicator, work.path());
  record.raw = run.raw;
  record.machine = bench::describe_machine(context.communicator, work.path());
  bench::RankGroups groups(context.communicator);
  record.memory = bench::measure_memory(groups, run.save.ranks, options.repeats);
  for (const bench::Workload& workload : workloads) {
    if (context.is_root()) {
      run.tell(fmt::format("workload {}, {}", base::printable(workload.name), base::format_size(workload.state.bytes)));
    }
    record.runs.push_back(bench::run_workload(groups, record.machine, workload, run));
    record.runs.back().sections = options.sections;
  }
  publish(context, options, record);
  return kExitGood;
}

}  // namespace cairn::cli
