// Runs a benchmark and tells its results.
#include "cli/bench.hpp"

#include <fmt/core.h>

#include <cstdio>

#include "base/bytes.hpp"
#include "base/text.hpp"
#include "bench/record_document.hpp"
#include "bench/runner.hpp"
#include "cairn/error.hpp"
#include "cli/arguments.hpp"
#include "cli/bench_plan.hpp"
#include "cli/bench_text.hpp"
#include "cli/exit_code.hpp"
#include "cli/json_output.hpp"
#include "comm/agree.hpp"
#include "os/fault.hpp"
#include "os/file.hpp"
#include "os/process.hpp"

namespace cairn::cli {
namespace {

constexpr unsigned kMostInFlight = 1024;
constexpr std::uint64_t kMostRequestBytes = 1ULL << 30;

void check_options(const BenchOptions& options) {
  check_positive(options.checkpointer.max_file_bytes, "--max-file-size");
  const auto fail = [](const std::string& what) { throw Error(ErrorKind::kUsage, what); };
  if (options.repeats == 0) fail("--repeats is 0; a figure needs at least one");
  if (options.raw.in_flight == 0 || options.raw.in_flight > kMostInFlight) {
    fail(fmt::format("--in-flight is {}; give 1 to {}", options.raw.in_flight, kMostInFlight));
  }
  const std::uint64_t request = options.raw.request_bytes;
  if (request == 0 || request % bench::kRawPageBytes != 0 || request > kMostRequestBytes) {
    fail(fmt::format("--request-size is {} bytes; give a multiple of {} up to 1 GiB", request, bench::kRawPageBytes));
  }
  for (const std::uint64_t bytes : options.sweep_bytes) check_positive(bytes, "a size of --sweep");
  if (options.size_bytes) check_positive(*options.size_bytes, "--size");
}

// Progress of a long run, for terminals and job logs alike; standard output is for results.
void tell(const std::string& line) { fmt::print(stderr, "cairn bench: {}\n", one_line(line)); }

bench::RunOptions run_options(Context& context, const BenchOptions& options) {
  bench::RunOptions out;
  out.checkpointer = options.checkpointer;
  out.checkpointer.hints = parse_hints(options.hints);
  out.checkpointer.run_id = "bench";
  out.save = bench_save(context, options);
  out.loads = bench_loads(context, options, out.save);
  out.repeats = options.repeats;
  out.warm_up = options.warm_up;
  out.raw = options.raw;
  out.reuse_plan = options.reuse_plan;
  out.drop_all_pages = options.drop_caches;
  out.scattered_memory = options.scattered_memory;
  out.tell = tell;
  return out;
}

// Collective: rank 0 tries what its file system takes, the others do the same.
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
  record.engine_asked = options.checkpointer.engine;
  record.aggregators_per_node = options.checkpointer.aggregators_per_node;
  record.memory_budget_bytes = options.checkpointer.memory_budget_bytes;
  record.max_file_bytes = options.checkpointer.max_file_bytes;
  record.read_back = options.checkpointer.read_back;
  return record;
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  if (!path.empty()) os::replace_file(path, base::as_bytes(text));
}

// Throws when a result could not be written there. What has the name stays as it is.
void try_file(const char* option, const std::filesystem::path& path) {
  if (path.empty()) return;
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorKind::kUsage, fmt::format("{} {}: {}", option, base::printable(path.string(), 1000), why));
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

// Collective. Before an hour of measurement, and not after it.
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

// Collective. Nothing was printed or written before: a run that failed has left no figure.
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

}  // namespace

int run_bench(Context& context, const BenchOptions& options) {
  check_options(options);
  try_results(context, options);
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
      tell(fmt::format("workload {}, {}", base::printable(workload.name), base::format_size(workload.state.bytes)));
    }
    record.runs.push_back(bench::run_workload(groups, record.machine, workload, run));
    record.runs.back().sections = options.sections;
  }
  publish(context, options, record);
  return kExitGood;
}

}  // namespace cairn::cli
