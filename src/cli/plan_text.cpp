// `cairn plan` for people: a heading, then tables of what each rank moves, says and takes.
#include <fmt/core.h>

#include "base/text.hpp"
#include "cli/plan_figures.hpp"
#include "cli/table.hpp"

namespace cairn::cli {
namespace {

std::string cell(std::uint64_t value, bool is_bytes) {
  return is_bytes ? base::format_size(value) : group_digits(value);
}

std::string milliseconds(double seconds) { return fmt::format("{:.2f}", 1e3 * seconds); }

std::vector<Column> columns(const char* first, std::initializer_list<const char*> numbers) {
  std::vector<Column> out = {{first}};
  for (const char* number : numbers) out.push_back({number, Align::kRight});
  return out;
}

// "held_bytes" -> "held", "transfers_out" -> "transfers out"
std::string title_of(std::string_view name) {
  std::string title(name.substr(0, name.find("_bytes")));
  std::replace(title.begin(), title.end(), '_', ' ');
  return title;
}

Table traffic_table(const PlanFigures& figures) {
  Table table(columns("per rank", {"min", "median", "max", "all ranks"}));
  for (const TrafficRow& row : figures.traffic) {
    const Sizes& s = row.per_rank;
    table.add({title_of(row.name), cell(s.min, row.is_bytes), cell(s.median, row.is_bytes), cell(s.max, row.is_bytes),
               cell(s.sum, row.is_bytes)});
  }
  return table;
}

Table metadata_table(const PlanFigures& figures) {
  Table table(columns("metadata per rank", {"sent median", "sent max", "received median", "received max"}));
  for (const MetadataRow& row : figures.metadata) {
    table.add({title_of(row.name), base::format_size(row.sent_bytes.median), base::format_size(row.sent_bytes.max),
               base::format_size(row.received_bytes.median), base::format_size(row.received_bytes.max)});
  }
  return table;
}

Table cost_table(const PlanFigures& figures) {
  Table table(columns("planning per rank", {"min ms", "median ms", "max ms", "median peak", "max peak"}));
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

}  // namespace

void print_plan(Output& output, const PlanFigures& figures, const PlanOptions& options) {
  output.line(fmt::format("{} ({}) on {} in layout {}", base::printable(options.model),
                          base::printable(options.sections == "all" ? "all sections" : options.sections),
                          counted(static_cast<std::uint64_t>(figures.ranks), "rank"), base::printable(options.layout)));
  output.line(fmt::format("{}, {} ({}) in {} with {} of headers, {} of {}", counted(figures.tensors, "tensor"),
                          counted(figures.tensor_bytes, "byte"), base::format_size(figures.tensor_bytes),
                          counted(figures.files, "file"), base::format_size(figures.header_bytes),
                          counted(figures.blocks, "block"), base::format_size(options.checkpointer.block_bytes)));
  output.line("\n" + traffic_table(figures).text());
  output.line(fmt::format(
      "stays on its rank: {:.2f} % of the bytes; largest over mean: {:.3f} written, {:.3f} provided; "
      "{} of the exchange",
      100 * figures.local_share, figures.write_balance, figures.provide_balance, counted(figures.rounds, "round")));
  if (figures.stripes) {
    const StripeFigures& stripes = *figures.stripes;
    output.line(fmt::format("stripes of {}: {}, of which {} are written by more than one rank",
                            base::format_size(stripes.stripe_bytes), group_digits(stripes.stripes),
                            group_digits(stripes.stripes_shared)));
  }
  if (figures.seconds_at_bandwidth) {
    output.line(fmt::format("writing at {}/s: {:.1f} s", base::format_size(options.bandwidth_bytes_per_second),
                            *figures.seconds_at_bandwidth));
  }
  output.line("\n" + metadata_table(figures).text());
  output.line("\n" + cost_table(figures).text());
  output.line("measured on " + sample_text(figures));
  output.line(fmt::format("slowest rank {}, largest rank {}; a plan keeps at most {} until the next save",
                          figures.slowest_rank, figures.largest_rank, base::format_size(figures.kept_bytes.max)));
}

}  // namespace cairn::cli
