// The figures of `cairn plan`, computed from a planned world.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "cli/plan.hpp"
#include "simulate/plan_world.hpp"

namespace cairn::cli {

/// Minimum, median (the upper of the two middle values), maximum and sum of some values.
template <class T>
struct Spread {
  T min{};
  T median{};
  T max{};
  T sum{};
};

template <class T>
Spread<T> spread_of(std::vector<T> values) {
  Spread<T> out;
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  out = {values.front(), values[values.size() / 2], values.back(), T{}};
  for (const T& value : values) out.sum += value;
  return out;
}

using Sizes = Spread<std::uint64_t>;

/// A quantity of every rank.
struct TrafficRow {
  std::string_view name;  ///< as in JSON
  bool is_bytes = true;
  Sizes per_rank;
};

/// One kind of messages between ranks while they plan, except messages of a rank to itself.
struct MetadataRow {
  std::string_view name;
  Sizes sent_bytes;
  Sizes received_bytes;
};

struct CostRow {
  std::string_view name;
  Spread<double> seconds;
  Sizes peak_bytes;
};

struct StripeFigures {
  std::uint64_t stripe_bytes = 0;
  std::uint64_t stripes = 0;         ///< stripes of all files
  std::uint64_t stripes_shared = 0;  ///< written by more than one rank
};

/// Sums over the ranks of each node.
struct NodeFigures {
  int nodes = 0;
  int ranks_per_node = 0;
  std::vector<TrafficRow> traffic;  ///< bytes that the nodes hold and write or read, and what goes to or from others
};

struct PlanFigures {
  int ranks = 0;
  std::uint64_t tensors = 0;
  std::uint64_t tensor_bytes = 0;
  std::uint64_t files = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t header_bytes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t rounds = 0;         ///< rounds of the exchange
  std::uint64_t catalog_bytes = 0;  ///< size of the packed catalog
  std::vector<TrafficRow> traffic;
  double local_share = 0;     ///< share of the moved bytes that stay on a rank: between its memory and its own extents
  double extent_balance = 0;  ///< largest divided by mean number of bytes that a rank writes or reads
  double memory_balance = 0;  ///< largest divided by mean number of bytes that a rank provides or wants
  std::vector<MetadataRow> metadata;
  std::vector<CostRow> costs;  ///< costs of the sampled ranks
  CostRow total;
  Sizes kept_bytes;
  std::vector<int> sampled;  ///< ascending
  int slowest_rank = 0;
  int largest_rank = 0;
  std::optional<StripeFigures> stripes;
  std::optional<NodeFigures> nodes;
  std::optional<double> seconds_at_bandwidth;  ///< if aggregators get equal shares of the bandwidth
};

/// The ranks whose planning is measured: `count` evenly spaced ranks (or all), and those with the most work in a step
/// (PlanWorld::busiest_ranks) or the most transfers of memory or of extents. Ascending.
std::vector<int> choose_sample(const simulate::PlanWorld& world, std::uint64_t count);

/// All figures except the costs.
PlanFigures figures_of(const simulate::PlanWorld& world, const PlanOptions& options);
void add_costs(PlanFigures& figures, const std::vector<simulate::RankCost>& costs);

/// Rank-local. print_plan() prints tables, print_plan_json() the JSON document.
void print_plan(Output& output, const PlanFigures& figures, const PlanOptions& options);
void print_plan_json(Output& output, const PlanFigures& figures, const PlanOptions& options);

}  // namespace cairn::cli
