// `cairn plan --json`: the schema is in README.md.
#include "cli/json_output.hpp"
#include "cli/plan_figures.hpp"

namespace cairn::cli {
namespace {

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
  planning["steps"] = Json::array();
  for (const CostRow& row : figures.costs) planning["steps"].push_back(cost_json(row));
  planning["total"] = cost_json(figures.total);
  planning["slowest_rank"] = figures.slowest_rank;
  planning["largest_rank"] = figures.largest_rank;
  planning["kept_bytes_max"] = figures.kept_bytes.max;
  return planning;
}

}  // namespace

void print_plan_json(Output& output, const PlanFigures& figures, const PlanOptions& options) {
  Json document = json_document("plan");
  document["model"] = options.model;
  document["layout"] = options.layout;
  document["sections"] = options.sections;
  document["ranks"] = figures.ranks;
  document["tensors"] = figures.tensors;
  document["size_bytes"] = figures.tensor_bytes;
  document["files"] = figures.files;
  document["files_size_bytes"] = figures.file_bytes;
  document["header_bytes"] = figures.header_bytes;
  document["block_size_bytes"] = options.checkpointer.block_bytes;
  document["blocks"] = figures.blocks;
  document["rounds"] = figures.rounds;
  document["catalog_bytes"] = figures.catalog_bytes;
  document["per_rank"] = Json::object();
  for (const TrafficRow& row : figures.traffic) document["per_rank"][std::string(row.name)] = spread_json(row.per_rank);
  document["local_share"] = figures.local_share;
  document["write_balance"] = figures.write_balance;
  document["provide_balance"] = figures.provide_balance;
  document["metadata"] = Json::array();
  for (const MetadataRow& row : figures.metadata) {
    document["metadata"].push_back({{"name", row.name},
                                    {"sent_bytes", spread_json(row.sent_bytes)},
                                    {"received_bytes", spread_json(row.received_bytes)}});
  }
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
