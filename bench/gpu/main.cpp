// Measures the codecs' kernels and the staging pipeline on a GPU and compares them with plain copies in the same run.
// Prints a table; writes JSON with --record. Every result is compared with the processor's codec before a figure is
// printed. bench/README.md defines the columns.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "gpu/runtime.hpp"
#include "kernels.hpp"
#include "quant/codec.hpp"

namespace {

using cairn::gpu_bench::Row;
using cairn::gpu_bench::Seconds;

constexpr int kNoDevice = 77;
constexpr double kGiga = 1e9;

nlohmann::ordered_json json_of(const Seconds& seconds) {
  return {{"min", seconds.least}, {"median", seconds.median}, {"max", seconds.most}};
}

void write_record(const std::string& path, const std::vector<Row>& rows, const cairn::gpu_bench::Options& options) {
  nlohmann::ordered_json record = {{"record", "cairn-bench-gpu"},
                                   {"version", 1},
                                   {"device", cairn::gpu::describe_device(0)},
                                   {"built_with", cairn::gpu::built_with()},
                                   {"state_bytes", options.state_bytes},
                                   {"budget_bytes", options.budget_bytes},
                                   {"repeats", options.repeats}};
  for (const Row& row : rows) {
    record["rows"].push_back({{"name", row.name},
                              {"clock", row.clock},
                              {"bytes", row.bytes},
                              {"seconds", json_of(row.seconds)},
                              {"reference", row.reference},
                              {"reference_bytes", row.reference_bytes},
                              {"reference_seconds", json_of(row.reference_seconds)},
                              {"ratio", row.rate() / row.reference_rate()}});
  }
  std::ofstream file(path);
  file << record.dump(2) << '\n';
  file.close();
  if (!file) throw cairn::Error(cairn::ErrorKind::kIo, "cannot write '" + cairn::base::printable(path) + "'");
}

void print(const std::vector<Row>& rows) {
  fmt::print("{:<28} {:>9} {:>24} {:>11} {:>7}\n", "what", "GB/s", "ms (min, median, max)", "copy, GB/s", "ratio");
  for (const Row& row : rows) {
    const Seconds& s = row.seconds;
    fmt::print("{:<28} {:>9.1f} {:>24} {:>11.1f} {:>6.0f}%\n", row.name, row.rate() / kGiga,
               fmt::format("{:.3f} {:.3f} {:.3f}", s.least * 1e3, s.median * 1e3, s.most * 1e3),
               row.reference_rate() / kGiga, 100 * row.rate() / row.reference_rate());
  }
}

int run(int argc, char** argv) {
  CLI::App app("Kernels and staging on a GPU");
  cairn::gpu_bench::Options options;
  std::string size = "1GiB";
  std::string budget = "64MiB";
  std::string record;
  options.repeats = 31;
  app.add_option("--size", size, "bytes of both moments");
  app.add_option("--budget", budget, "pinned memory of a pipeline");
  app.add_option("--repeats", options.repeats, "timed repeats, of which the median counts")
      ->check(CLI::Range(1, 10000));
  app.add_option("--record", record, "write a JSON record there");
  CLI11_PARSE(app, argc, argv);
  options.state_bytes = cairn::base::parse_size(size);
  options.budget_bytes = cairn::base::parse_size(budget);
  const cairn::gpu::Availability devices = cairn::gpu::availability();
  if (devices.devices == 0) {
    fmt::print(stderr, "cairn_bench_gpu: no GPU: {}; nothing was measured\n", devices.reason);
    return kNoDevice;
  }
  std::vector<Row> rows;
  for (const cairn::quant::Codec* codec : cairn::quant::all_codecs()) {
    for (Row& row : cairn::gpu_bench::measure_codec(*codec, options)) rows.push_back(std::move(row));
  }
  fmt::print("{}, {}; {} of moments, {} repeats\n", cairn::gpu::describe_device(0), cairn::gpu::built_with(), size,
             options.repeats);
  print(rows);
  if (!record.empty()) write_record(record, rows, options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "cairn_bench_gpu: {}\n", error.what());
    return 1;
  }
}
