#include "cli/bench_plan.hpp"

#include <fmt/core.h>

#include "base/text.hpp"
#include "bench/workload.hpp"
#include "cairn/error.hpp"
#include "cli/arguments.hpp"
#include "cli/demo_state.hpp"
#include "shard/layout.hpp"

namespace cairn::cli {
namespace {

constexpr const char* kDefaultModel = "smollm2-135m";

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorKind::kUsage, what); }

void check_combination(const BenchOptions& options) {
  const bool has_model = !options.model.empty();
  if (!options.mlperf.empty() && (has_model || options.layers || !options.sweep_bytes.empty())) {
    fail("--mlperf has a model of its own: give no --model, --layers or --sweep with it");
  }
  if (options.size_bytes && (has_model || options.layers || !options.sweep_bytes.empty())) {
    fail("--size makes a model of that size: give no --model, --layers or --sweep with it");
  }
  if (options.layers && !options.sweep_bytes.empty())
    fail("--sweep chooses the layers itself: give no --layers with it");
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

// A layout as text, for `ranks` when they were given, else for as many as it says.
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

}  // namespace

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

bench::Placement bench_save(Context& context, const BenchOptions& options) {
  const int ranks = options.save_ranks.value_or(context.communicator.size());
  check_ranks(context, ranks, "--save-ranks");
  if (!options.layout.empty()) {
    // Without --save-ranks a layout for fewer ranks than run is most likely a mistake.
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

}  // namespace cairn::cli
