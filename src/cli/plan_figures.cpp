// Computes the figures of `cairn plan`, and prints them as tables or JSON.
#include "cli/plan_figures.hpp"

#include <fmt/core.h>

#include <functional>
#include <set>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "cli/json_output.hpp"
#include "cli/output.hpp"
#include "cli/table.hpp"

namespace cairn::cli {
namespace {

Sizes over_ranks(const simulate::PlanWorld& world, std::uint64_t (*value)(const simulate::RankTraffic&)) {
  std::vector<std::uint64_t> values;
  for (const simulate::RankTraffic& traffic : world.traffic()) values.push_back(value(traffic));
  return spread_of(std::move(values));
}

MetadataRow row_of(const simulate::MetadataVolume& kind) {
  std::vector<std::uint64_t> sent;
  std::vector<std::uint64_t> received;
  for (const simulate::MessageVolume& volume : kind.volumes) {
    sent.push_back(volume.sent_bytes);
    received.push_back(volume.received_bytes);
  }
  return {kind.name, spread_of(std::move(sent)), spread_of(std::move(received))};
}

NodeFigures nodes_of(const simulate::PlanWorld& world, bool is_load) {
  NodeFigures out;
  out.ranks_per_node = world.input().ranks_per_node;
  out.nodes = world.ranks() / out.ranks_per_node;
  const auto add = [&](std::string_view name, std::uint64_t (*value)(const simulate::RankTraffic&)) {
    std::vector<std::uint64_t> sums(static_cast<std::size_t>(out.nodes));
    for (std::size_t rank = 0; rank < world.traffic().size(); ++rank) {
      sums[rank / static_cast<std::size_t>(out.ranks_per_node)] += value(world.traffic()[rank]);
    }
    out.traffic.push_back({name, true, spread_of(std::move(sums))});
  };
  add(is_load ? "wanted_bytes" : "held_bytes", [](const auto& t) { return t.memory_bytes; });
  add(is_load ? "read_bytes" : "written_bytes", [](const auto& t) { return t.extent_bytes; });
  add(is_load ? "received_from_other_nodes_bytes" : "sent_to_other_nodes_bytes",
      [](const auto& t) { return t.far_bytes; });
  return out;
}

double balance(const Sizes& sizes, int ranks) {
  return sizes.sum == 0 ? 1.0 : static_cast<double>(sizes.max) * ranks / static_cast<double>(sizes.sum);
}

/// Extents do not overlap, so a stripe is shared if an extent begins inside it; several may begin in one stripe.
StripeFigures stripes_of(const simulate::PlanWorld& world, std::uint64_t stripe_bytes) {
  StripeFigures out;
  out.stripe_bytes = stripe_bytes;
  for (const auto& file : world.layout().files) out.stripes += base::ceil_div(file.size_bytes, stripe_bytes);
  std::set<std::pair<std::uint32_t, std::uint64_t>> shared;
  for (int rank = 0; rank < world.ranks(); ++rank) {
    for (const plan::Extent& extent : world.extents().of(rank)) {
      if (extent.begin % stripe_bytes != 0) shared.emplace(extent.file, extent.begin / stripe_bytes);
    }
  }
  out.stripes_shared = shared.size();
  return out;
}

// `cairn plan` for people: a heading, then tables of bytes, messages and costs per rank.

std::string cell(std::uint64_t value, bool is_bytes) {
  return is_bytes ? base::format_size(value) : group_digits(value);
}

std::string milliseconds(double seconds) { return fmt::format("{:.2f}", 1e3 * seconds); }

// "held_bytes" -> "held", "transfers_out" -> "transfers out"
std::string title_of(std::string_view name) {
  std::string title(name.substr(0, name.find("_bytes")));
  std::replace(title.begin(), title.end(), '_', ' ');
  return title;
}

Table traffic_table(const std::string& title, const std::vector<TrafficRow>& rows) {
  Table table({title, ">min", ">median", ">max", ">all ranks"});
  for (const TrafficRow& row : rows) {
    const Sizes& s = row.per_rank;
    table.add({title_of(row.name), cell(s.min, row.is_bytes), cell(s.median, row.is_bytes), cell(s.max, row.is_bytes),
               cell(s.sum, row.is_bytes)});
  }
  return table;
}

Table metadata_table(const PlanFigures& figures) {
  Table table({"metadata per rank", ">sent median", ">sent max", ">received median", ">received max"});
  for (const MetadataRow& row : figures.metadata) {
    table.add({title_of(row.name), base::format_size(row.sent_bytes.median), base::format_size(row.sent_bytes.max),
               base::format_size(row.received_bytes.median), base::format_size(row.received_bytes.max)});
  }
  return table;
}

Table cost_table(const PlanFigures& figures) {
  Table table({"planning per rank", ">min ms", ">median ms", ">max ms", ">median peak", ">max peak"});
  const auto add = [&](const CostRow& row) {
    table.add({std::string(row.name), milliseconds(row.seconds.min), milliseconds(row.seconds.median),
               milliseconds(row.seconds.max), base::format_size(row.peak_bytes.median),
               base::format_size(row.peak_bytes.max)});
  };
  for (const CostRow& row : figures.costs) add(row);
  add(figures.total);
  return table;
}

std::string sample_text(const PlanFigures& figures) {
  if (figures.sampled.size() == static_cast<std::size_t>(figures.ranks)) return "all ranks";
  constexpr std::size_t kShown = 6;
  const std::size_t shown = std::min(kShown, figures.sampled.size());
  const std::vector<int> first(figures.sampled.begin(), figures.sampled.begin() + static_cast<std::ptrdiff_t>(shown));
  return fmt::format("{} ({}{}): evenly spaced ones and those with the most to do",
                     counted(figures.sampled.size(), "rank"), base::joined(first),
                     shown < figures.sampled.size() ? " ..." : "");
}

// `cairn plan --json`: the schema is in README.md.

using base::Json;

Json spread_json(const Sizes& sizes) {
  return {{"min", sizes.min}, {"median", sizes.median}, {"max", sizes.max}, {"sum", sizes.sum}};
}

Json cost_json(const CostRow& row) {
  return {{"name", row.name},
          {"seconds_min", row.seconds.min},
          {"seconds_median", row.seconds.median},
          {"seconds_max", row.seconds.max},
          {"peak_bytes_min", row.peak_bytes.min},
          {"peak_bytes_median", row.peak_bytes.median},
          {"peak_bytes_max", row.peak_bytes.max}};
}

Json planning_json(const PlanFigures& figures) {
  Json planning;
  planning["ranks_sampled"] = figures.sampled;
  planning["steps"] = Json::array_of(figures.costs, cost_json);
  planning["total"] = cost_json(figures.total);
  planning["slowest_rank"] = figures.slowest_rank;
  planning["largest_rank"] = figures.largest_rank;
  planning["kept_bytes_max"] = figures.kept_bytes.max;
  return planning;
}

}  // namespace

std::vector<int> choose_sample(const simulate::PlanWorld& world, std::uint64_t count) {
  const auto ranks = static_cast<std::uint64_t>(world.ranks());
  std::vector<int> sample;
  count = std::min(count, ranks);
  for (std::uint64_t i = 0; i < count; ++i) sample.push_back(static_cast<int>(i * ranks / count));
  for (const int rank : world.busiest_ranks()) sample.push_back(rank);
  const auto traffic = [&](int rank) { return world.traffic()[static_cast<std::size_t>(rank)]; };
  sample.push_back(simulate::rank_with_most(world.ranks(), [&](int rank) { return traffic(rank).transfers; }));
  sample.push_back(simulate::rank_with_most(world.ranks(), [&](int rank) { return traffic(rank).arriving; }));
  std::sort(sample.begin(), sample.end());
  sample.erase(std::unique(sample.begin(), sample.end()), sample.end());
  return sample;
}

PlanFigures figures_of(const simulate::PlanWorld& world, const PlanOptions& options) {
  PlanFigures figures;
  figures.ranks = world.ranks();
  figures.tensors = world.files().catalog().size();
  figures.tensor_bytes = world.files().tensor_bytes();
  figures.files = world.layout().files.size();
  figures.file_bytes = world.extents().total_bytes();
  figures.rounds = world.rounds();
  figures.header_bytes = figures.file_bytes - figures.tensor_bytes;
  figures.catalog_bytes = world.files().catalog().packed_bytes();
  for (const auto& file : world.layout().files) {
    figures.blocks += base::ceil_div(file.size_bytes, options.checkpointer.files.block_bytes);
  }
  for (const simulate::TrafficFigure& figure : world.traffic_figures()) {
    figures.traffic.push_back({figure.name, figure.is_bytes, over_ranks(world, figure.value)});
  }
  const Sizes local = over_ranks(world, [](const simulate::RankTraffic& t) { return t.local_bytes; });
  const Sizes extents = over_ranks(world, [](const simulate::RankTraffic& t) { return t.extent_bytes; });
  const Sizes memory = over_ranks(world, [](const simulate::RankTraffic& t) { return t.away_bytes + t.local_bytes; });
  if (memory.sum != 0) figures.local_share = static_cast<double>(local.sum) / static_cast<double>(memory.sum);
  figures.extent_balance = balance(extents, figures.ranks);
  figures.memory_balance = balance(memory, figures.ranks);
  for (const simulate::MetadataVolume& kind : world.metadata()) figures.metadata.push_back(row_of(kind));
  if (world.input().ranks_per_node != 0) figures.nodes = nodes_of(world, options.load_layout.has_value());
  if (options.stripe_bytes != 0) figures.stripes = stripes_of(world, options.stripe_bytes);
  if (options.bandwidth_bytes_per_second != 0) {
    const auto aggregators =
        std::ranges::count_if(world.traffic(), [](const simulate::RankTraffic& t) { return t.extents != 0; });
    figures.seconds_at_bandwidth = static_cast<double>(extents.max) * static_cast<double>(aggregators) /
                                   static_cast<double>(options.bandwidth_bytes_per_second);
  }
  return figures;
}

void add_costs(PlanFigures& figures, const std::vector<simulate::RankCost>& costs) {
  const auto row = [&](std::string_view name,
                       const std::function<simulate::StepCost(const simulate::RankCost&)>& cost_of) {
    std::vector<double> seconds;
    std::vector<std::uint64_t> peaks;
    for (const simulate::RankCost& cost : costs) {
      seconds.push_back(cost_of(cost).seconds);
      peaks.push_back(cost_of(cost).peak_bytes);
    }
    return CostRow{name, spread_of(std::move(seconds)), spread_of(std::move(peaks))};
  };
  for (std::size_t step = 0; step < costs.front().steps.size(); ++step) {
    figures.costs.push_back(
        row(costs.front().steps[step].name, [step](const simulate::RankCost& cost) { return cost.steps[step]; }));
  }
  figures.total = row("total", [](const simulate::RankCost& cost) {
    return simulate::StepCost{"total", cost.seconds, cost.peak_bytes};
  });
  std::vector<std::uint64_t> kept;
  for (const simulate::RankCost& cost : costs) {
    kept.push_back(cost.kept_bytes);
    figures.sampled.push_back(cost.rank);
  }
  figures.kept_bytes = spread_of(std::move(kept));
  figures.slowest_rank = std::ranges::max_element(costs, {}, &simulate::RankCost::seconds)->rank;
  figures.largest_rank = std::ranges::max_element(costs, {}, &simulate::RankCost::peak_bytes)->rank;
}

void print_plan(Output& output, const PlanFigures& figures, const PlanOptions& options) {
  const bool is_load = options.load_layout.has_value();
  output.line(
      fmt::format("{} ({}) {} {} in layout {}", base::printable(options.model),
                  base::printable(options.sections == "all" ? "all sections" : options.sections),
                  is_load ? fmt::format("as saved in layout {}, loaded by", base::printable(options.layout)) : "on",
                  counted(static_cast<std::uint64_t>(figures.ranks), "rank"),
                  base::printable(is_load ? *options.load_layout : options.layout)));
  output.line(fmt::format("{}, {} ({}) in {} with {} of headers, {} of {}", counted(figures.tensors, "tensor"),
                          counted(figures.tensor_bytes, "byte"), base::format_size(figures.tensor_bytes),
                          counted(figures.files, "file"), base::format_size(figures.header_bytes),
                          counted(figures.blocks, "block"), base::format_size(options.checkpointer.files.block_bytes)));
  output.line("\n" + traffic_table("per rank", figures.traffic).text());
  output.line(
      fmt::format("{} its rank: {:.2f} % of the bytes; largest over mean: {:.3f} {}, {:.3f} {}; {} of the exchange",
                  is_load ? "is read by" : "stays on", 100 * figures.local_share, figures.extent_balance,
                  is_load ? "read" : "written", figures.memory_balance, is_load ? "wanted" : "provided",
                  counted(figures.rounds, "round")));
  if (figures.nodes) {
    output.line("\n" +
                traffic_table(fmt::format("per node ({})", figures.nodes->nodes), figures.nodes->traffic).text());
  }
  if (figures.stripes) {
    const StripeFigures& stripes = *figures.stripes;
    output.line(fmt::format("stripes of {}: {}, of which {} are written by more than one rank",
                            base::format_size(stripes.stripe_bytes), group_digits(stripes.stripes),
                            group_digits(stripes.stripes_shared)));
  }
  if (figures.seconds_at_bandwidth) {
    output.line(fmt::format("{} at {}/s: {:.1f} s", is_load ? "reading" : "writing",
                            base::format_size(options.bandwidth_bytes_per_second), *figures.seconds_at_bandwidth));
  }
  output.line("\n" + metadata_table(figures).text());
  output.line("\n" + cost_table(figures).text());
  output.line("measured on " + sample_text(figures));
  output.line(fmt::format("slowest rank {}, largest rank {}; a plan keeps at most {} {}", figures.slowest_rank,
                          figures.largest_rank, base::format_size(figures.kept_bytes.max),
                          is_load ? "while it reads" : "until the next save"));
}

void print_plan_json(Output& output, const PlanFigures& figures, const PlanOptions& options) {
  const bool is_load = options.load_layout.has_value();
  Json document = json_document("plan");
  document["model"] = options.model;
  document["layout"] = options.layout;
  document["load_layout"] = nullptr;
  if (is_load) document["load_layout"] = *options.load_layout;
  document["sections"] = options.sections;
  document["ranks"] = figures.ranks;
  document["tensors"] = figures.tensors;
  document["size_bytes"] = figures.tensor_bytes;
  document["files"] = figures.files;
  document["files_size_bytes"] = figures.file_bytes;
  document["header_bytes"] = figures.header_bytes;
  document["block_size_bytes"] = options.checkpointer.files.block_bytes;
  document["blocks"] = figures.blocks;
  document["rounds"] = figures.rounds;
  document["catalog_bytes"] = figures.catalog_bytes;
  document["per_rank"] = Json::object();
  for (const TrafficRow& row : figures.traffic) document["per_rank"][std::string(row.name)] = spread_json(row.per_rank);
  document["per_node"] = nullptr;
  if (figures.nodes) {
    document["per_node"] = {{"nodes", figures.nodes->nodes}, {"ranks_per_node", figures.nodes->ranks_per_node}};
    for (const TrafficRow& row : figures.nodes->traffic) {
      document["per_node"][std::string(row.name)] = spread_json(row.per_rank);
    }
  }
  document["local_share"] = figures.local_share;
  document[is_load ? "read_balance" : "write_balance"] = figures.extent_balance;
  document[is_load ? "wanted_balance" : "provide_balance"] = figures.memory_balance;
  document["metadata"] = Json::array_of(figures.metadata, [](const MetadataRow& row) -> Json {
    return {{"name", row.name},
            {"sent_bytes", spread_json(row.sent_bytes)},
            {"received_bytes", spread_json(row.received_bytes)}};
  });
  document["planning"] = planning_json(figures);
  document["stripes"] = nullptr;
  if (figures.stripes) {
    document["stripes"] = {{"stripe_size_bytes", figures.stripes->stripe_bytes},
                           {"stripes", figures.stripes->stripes},
                           {"stripes_shared", figures.stripes->stripes_shared}};
  }
  document["bandwidth_bytes_per_second"] = nullptr;
  document["seconds_at_bandwidth"] = nullptr;
  if (figures.seconds_at_bandwidth) {
    document["bandwidth_bytes_per_second"] = options.bandwidth_bytes_per_second;
    document["seconds_at_bandwidth"] = *figures.seconds_at_bandwidth;
  }
  print_json(output, document);
}

}  // namespace cairn::cli
