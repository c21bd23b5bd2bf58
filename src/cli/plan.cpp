// Reads the arguments of `cairn plan`, plans, and prints the figures.
#include "cli/plan.hpp"

#include <fmt/core.h>

#include <memory>
#include <set>

#include "base/text.hpp"
#include "bench/workload.hpp"
#include "cairn/error.hpp"
#include "checkpoint/progress.hpp"
#include "cli/arguments.hpp"
#include "cli/plan_figures.hpp"
#include "cli/progress.hpp"
#include "cli/table.hpp"
#include "comm/agree.hpp"
#include "simulate/plan_load.hpp"
#include "simulate/plan_save.hpp"

namespace cairn::cli {
namespace {

std::set<std::string> words_of(const std::string& list) {
  std::set<std::string> words;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    words.insert(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

/// Drops the tensors whose section is not in `list`.
void keep_sections(bench::DemoState& state, const std::string& list) {
  if (list == "all") return;
  const std::set<std::string> wanted = words_of(list);
  const std::set<std::string> known(state.sections.begin(), state.sections.end());
  for (const std::string& section : wanted) {
    if (known.contains(section)) continue;
    throw Error(ErrorKind::kUsage, fmt::format("--sections: '{}' is not a section; there are {}, and all",
                                               base::printable(section), base::joined(known)));
  }
  bench::keep_sections(state, {wanted.begin(), wanted.end()});
}

/// The cost of the quickest of three runs: disturbances on a busy machine are not a cost of planning.
simulate::RankCost cost_of(const simulate::PlanWorld& world, int rank) {
  simulate::RankCost best = world.replay(rank);
  for (int again = 0; again < 2; ++again) {
    simulate::RankCost cost = world.replay(rank);
    if (cost.seconds < best.seconds) best = std::move(cost);
  }
  return best;
}

std::unique_ptr<simulate::PlanWorld> world_of(const simulate::PlanInput& input, const PlanOptions& options) {
  if (!options.load_layout) return std::make_unique<simulate::SaveWorld>(input);
  return std::make_unique<simulate::LoadWorld>(input);
}

/// The layout of the save; without --layout, all of --nodes and --ranks-per-node as fsdp=N.
std::string layout_to_save(Context& context, const PlanOptions& options) {
  if (!options.layout.empty()) return layout_text(context.communicator, options.layout);
  if (options.nodes && options.ranks_per_node) return fmt::format("fsdp={}", *options.nodes * *options.ranks_per_node);
  throw Error(ErrorKind::kUsage,
              "--layout is missing: say how the ranks shard the model, or give --nodes and "
              "--ranks-per-node for fsdp over all of them");
}

/// Ranks of each node; 0: not given. Throws Error(kUsage) if these are not the ranks that plan.
int ranks_of_node(const PlanOptions& options, const shard::ShardMap& map) {
  if (!options.nodes && !options.ranks_per_node) return 0;
  const auto ranks = static_cast<std::uint64_t>(map.layout().world_size());
  const std::uint64_t of_node = options.ranks_per_node ? *options.ranks_per_node : ranks / *options.nodes;
  if (of_node != 0 && ranks % of_node == 0 && ranks / of_node == options.nodes.value_or(ranks / of_node)) {
    return static_cast<int>(of_node);
  }
  const std::string on = options.nodes ? " on " + counted(*options.nodes, "node") : "";
  const std::string each = options.ranks_per_node ? " of " + counted(*options.ranks_per_node, "rank") + " each" : "";
  throw Error(ErrorKind::kUsage, fmt::format("the layout is for {}, which cannot be{}{}: correct --nodes, "
                                             "--ranks-per-node or the layout",
                                             counted(ranks, "rank"), on, options.nodes ? each : " on nodes" + each));
}

PlanFigures plan_here(const PlanOptions& options, const simulate::PlanInput& input) {
  const std::unique_ptr<simulate::PlanWorld> planned = world_of(input, options);
  simulate::PlanWorld& world = *planned;
  const std::vector<int> sample = choose_sample(world, options.ranks_sampled);
  world.keep_records(sample);
  PlanFigures figures = figures_of(world, options);
  std::vector<simulate::RankCost> costs;
  for (const int rank : sample) {
    costs.push_back(cost_of(world, rank));
    checkpoint::report_progress("measuring", checkpoint::share_of_bytes(input.state.bytes, costs.size(), sample.size()),
                                input.state.bytes);
  }
  add_costs(figures, costs);
  return figures;
}

void plan_and_print(Context& context, const PlanOptions& options, const simulate::PlanInput& input) {
  const PlanFigures figures = [&] {
    const ProgressLine progress(context.output);
    return plan_here(options, input);
  }();
  if (options.json) {
    print_plan_json(context.output, figures, options);
    return;
  }
  for (const std::string& note : input.map.notes()) context.output.note(note);
  print_plan(context.output, figures, options);
}

}  // namespace

int run_plan(Context& context, const PlanOptions& options) {
  const std::string layout = layout_to_save(context, options);
  bench::DemoState state = demo_state(context.communicator, options.model, options.layers);
  keep_sections(state, options.sections);
  // A layout that does not fit the model is refused even if only a load is planned: the save would refuse it.
  const shard::ShardMap saved(shard::Layout::from_text(layout), state.model, state.sections, state.tensors);
  std::optional<shard::ShardMap> loaded;
  if (options.load_layout.has_value()) {
    loaded.emplace(shard::Layout::from_text(layout_text(context.communicator, *options.load_layout)), state.model,
                   state.sections, state.tensors);
  }
  const shard::ShardMap& map = loaded ? *loaded : saved;
  PlanOptions named = options;
  if (named.layout.empty()) named.layout = layout;
  const simulate::PlanInput input{state, map, named.checkpointer, ranks_of_node(options, map)};
  comm::agree_on_root(context.communicator, "plan", 0, [&] { plan_and_print(context, named, input); });
  return kExitGood;
}

}  // namespace cairn::cli
