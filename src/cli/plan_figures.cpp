#include "cli/plan_figures.hpp"

#include <functional>
#include <set>

#include "base/checked.hpp"

namespace cairn::cli {
namespace {

using Value = std::function<std::uint64_t(const RankTraffic&)>;

Sizes over_ranks(const PlanWorld& world, const Value& value) {
  std::vector<std::uint64_t> values;
  for (const RankTraffic& traffic : world.traffic()) values.push_back(value(traffic));
  return spread_of(std::move(values));
}

std::vector<TrafficRow> traffic_rows(const PlanWorld& world) {
  const auto row = [&](std::string_view name, bool is_bytes, const Value& value) {
    return TrafficRow{name, is_bytes, over_ranks(world, value)};
  };
  return {row("held_bytes", true, [](const RankTraffic& t) { return t.held_bytes; }),
          row("provided_bytes", true, [](const RankTraffic& t) { return t.sent_bytes + t.local_bytes; }),
          row("sent_bytes", true, [](const RankTraffic& t) { return t.sent_bytes; }),
          row("received_bytes", true, [](const RankTraffic& t) { return t.received_bytes; }),
          row("local_bytes", true, [](const RankTraffic& t) { return t.local_bytes; }),
          row("written_bytes", true, [](const RankTraffic& t) { return t.extent_bytes; }),
          row("extents", false, [](const RankTraffic& t) { return t.extents; }),
          row("transfers_out", false, [](const RankTraffic& t) { return t.transfers; }),
          row("transfers_in", false, [](const RankTraffic& t) { return t.arriving; }),
          row("peers", false, [](const RankTraffic& t) { return t.peers; })};
}

MetadataRow posted(const PlanWorld& world, std::string_view name, const PostOffice& office) {
  std::vector<std::uint64_t> sent;
  std::vector<std::uint64_t> received;
  for (int rank = 0; rank < world.ranks(); ++rank) {
    sent.push_back(office.volume_of(rank).sent_bytes);
    received.push_back(office.volume_of(rank).received_bytes);
  }
  return {name, spread_of(std::move(sent)), spread_of(std::move(received))};
}

/// A rank's message counts once, however many ranks receive it.
MetadataRow gathered(std::string_view name, const comm::Mail& mail) {
  std::uint64_t all = 0;
  for (const base::Bytes& bytes : mail) all += bytes.size();
  std::vector<std::uint64_t> sent;
  std::vector<std::uint64_t> received;
  for (const base::Bytes& bytes : mail) {
    sent.push_back(bytes.size());
    received.push_back(all - bytes.size());
  }
  return {name, spread_of(std::move(sent)), spread_of(std::move(received))};
}

/// To rank 0 only.
MetadataRow indexes_row(const PlanWorld& world) {
  std::vector<std::uint64_t> sent;
  for (const base::Bytes& bytes : world.messages().index_shares) sent.push_back(bytes.size());
  sent.front() = 0;
  std::vector<std::uint64_t> received(sent.size(), 0);
  for (const std::uint64_t bytes : sent) received.front() += bytes;
  return {"indexes", spread_of(std::move(sent)), spread_of(std::move(received))};
}

std::vector<MetadataRow> metadata_rows(const PlanWorld& world) {
  const PlanWorld::Messages& messages = world.messages();
  return {posted(world, "descriptions", messages.descriptions),
          gathered("samples", messages.samples),
          posted(world, "sorting", messages.spread),
          gathered("catalog", messages.stretches),
          gathered("header_sizes", messages.header_shares),
          indexes_row(world),
          posted(world, "claims", messages.claims),
          posted(world, "provisions", messages.provisions),
          posted(world, "transfers", messages.records)};
}

double balance(const Sizes& sizes, int ranks) {
  return sizes.sum == 0 ? 1.0 : static_cast<double>(sizes.max) * ranks / static_cast<double>(sizes.sum);
}

/// Extents do not overlap, so a stripe is shared where one begins inside of it; several may begin in the same one.
StripeFigures stripes_of(const PlanWorld& world, std::uint64_t stripe_bytes) {
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

int most(int ranks, const std::function<std::uint64_t(int)>& value) {
  int best = 0;
  for (int rank = 1; rank < ranks; ++rank) {
    if (value(rank) > value(best)) best = rank;
  }
  return best;
}

}  // namespace

std::vector<int> choose_sample(const PlanWorld& world, std::uint64_t count) {
  const auto ranks = static_cast<std::uint64_t>(world.ranks());
  std::vector<int> sample;
  count = std::min(count, ranks);
  for (std::uint64_t i = 0; i < count; ++i) sample.push_back(static_cast<int>(i * ranks / count));
  const PlanWorld::Messages& messages = world.messages();
  for (const PostOffice* office : {&messages.descriptions, &messages.spread, &messages.claims, &messages.provisions}) {
    sample.push_back(most(world.ranks(), [&](int rank) { return office->volume_of(rank).received_bytes; }));
  }
  for (int rank = 0; rank < world.ranks(); ++rank) {
    if (!messages.index_shares[static_cast<std::size_t>(rank)].empty()) sample.push_back(rank);
  }
  const auto traffic = [&](int rank) { return world.traffic()[static_cast<std::size_t>(rank)]; };
  sample.push_back(most(world.ranks(), [&](int rank) { return traffic(rank).transfers; }));
  sample.push_back(most(world.ranks(), [&](int rank) { return traffic(rank).arriving; }));
  std::sort(sample.begin(), sample.end());
  sample.erase(std::unique(sample.begin(), sample.end()), sample.end());
  return sample;
}

PlanFigures figures_of(const PlanWorld& world, const PlanOptions& options) {
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
    figures.blocks += base::ceil_div(file.size_bytes, options.checkpointer.block_bytes);
  }
  figures.traffic = traffic_rows(world);
  const Sizes local = over_ranks(world, [](const RankTraffic& t) { return t.local_bytes; });
  const Sizes written = over_ranks(world, [](const RankTraffic& t) { return t.extent_bytes; });
  const Sizes provided = over_ranks(world, [](const RankTraffic& t) { return t.sent_bytes + t.local_bytes; });
  if (provided.sum != 0) figures.local_share = static_cast<double>(local.sum) / static_cast<double>(provided.sum);
  figures.write_balance = balance(written, figures.ranks);
  figures.provide_balance = balance(provided, figures.ranks);
  figures.metadata = metadata_rows(world);
  if (options.stripe_bytes != 0) figures.stripes = stripes_of(world, options.stripe_bytes);
  if (options.bandwidth_bytes_per_second != 0) {
    const auto writers = std::ranges::count_if(world.traffic(), [](const RankTraffic& t) { return t.extents != 0; });
    figures.seconds_at_bandwidth = static_cast<double>(written.max) * static_cast<double>(writers) /
                                   static_cast<double>(options.bandwidth_bytes_per_second);
  }
  return figures;
}

void add_costs(PlanFigures& figures, const std::vector<RankCost>& costs) {
  const auto row = [&](std::string_view name, const std::function<StepCost(const RankCost&)>& cost_of) {
    std::vector<double> seconds;
    std::vector<std::uint64_t> peaks;
    for (const RankCost& cost : costs) {
      seconds.push_back(cost_of(cost).seconds);
      peaks.push_back(cost_of(cost).peak_bytes);
    }
    return CostRow{name, spread_of(std::move(seconds)), spread_of(std::move(peaks))};
  };
  for (std::size_t step = 0; step < kPlanSteps.size(); ++step) {
    figures.costs.push_back(row(kPlanSteps[step], [step](const RankCost& cost) { return cost.steps[step]; }));
  }
  figures.total = row("total", [](const RankCost& cost) { return StepCost{cost.seconds, cost.peak_bytes}; });
  std::vector<std::uint64_t> kept;
  for (const RankCost& cost : costs) {
    kept.push_back(cost.kept_bytes);
    figures.sampled.push_back(cost.rank);
  }
  figures.kept_bytes = spread_of(std::move(kept));
  figures.slowest_rank = std::ranges::max_element(costs, {}, &RankCost::seconds)->rank;
  figures.largest_rank = std::ranges::max_element(costs, {}, &RankCost::peak_bytes)->rank;
}

}  // namespace cairn::cli
