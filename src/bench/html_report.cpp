// Makes the HTML page of a record.
#include "bench/record_document.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/text.hpp"
#include "bench/html_page.hpp"
#include "bench/svg_plot.hpp"

namespace cairn::bench {

namespace {

constexpr double kGiB = 1073741824.0;
constexpr int kSaveColour = 0;
constexpr int kCeilingColour = 5;
constexpr std::size_t kMostHosts = 16;  // largest number of hosts that are named one by one

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string spread(const Summary& summary, double unit, int digits) {
  return fmt::format("{:.{}f} <span class=\"range\">({:.{}f} – {:.{}f})</span>", summary.median / unit, digits,
                     summary.min / unit, digits, summary.max / unit, digits);
}

std::string title_of(const Operation& operation) {
  return fmt::format("{} by {} {}, {}", name_of(operation.kind), operation.ranks,
                     operation.ranks == 1 ? "rank" : "ranks", operation.layout);
}

std::string hosts_text(const Machine& machine) {
  std::string out;
  for (std::size_t h = 0; h < std::min(machine.hosts.size(), kMostHosts); ++h) {
    const Host& host = machine.hosts[h];
    out += fmt::format("{}{}: {}, {}, {}", h == 0 ? "" : "; ", host.name,
                       base::counted(static_cast<std::uint64_t>(host.ranks), "rank"), base::counted(host.cores, "core"),
                       base::format_size(host.memory_bytes));
  }
  if (machine.hosts.size() > kMostHosts) out += fmt::format("; and {} more", machine.hosts.size() - kMostHosts);
  return out;
}

std::string machine_table(const Record& record) {
  const Machine& machine = record.machine;
  std::string out = "<table class=\"facts\">\n";
  out += fact_row("date", machine.date);
  if (!machine.job.empty()) out += fact_row("job", machine.job);
  out += fact_row("command", record.command_line);
  out += fact_row("hosts", hosts_text(machine));
  out += fact_row("processor", machine.processor);
  out += fact_row("kernel", machine.kernel);
  out += fact_row("directory", record.directory);
  out += fact_row("file system", fmt::format("{} of {} at {} ({})", machine.mount.type, machine.mount.source,
                                             machine.mount.point, machine.mount.options));
  out += fact_row("MPI", machine.mpi_library);
  out +=
      fact_row("tool", fmt::format("{}, revision {}, compiler {}", machine.tool, machine.revision, machine.compiler));
  out +=
      fact_row("repeats", fmt::format("{}, after {} of warm-up that are not counted", record.repeats, record.warm_up));
  out += fact_row("raw ceilings", fmt::format("{}, requests of {}, {} in flight per rank", name_of(record.raw.method),
                                              base::format_size(record.raw.request_bytes), record.raw.in_flight));
  return out + "</table>\n";
}

std::string operation_table(const Run& run) {
  std::string out =
      "<div class=\"wide\"><table>\n<tr><th class=\"left\">operation</th><th>engine</th><th>seconds</th><th>first "
      "rank</th>"
      "<th>GiB/s</th><th>raw GiB/s</th><th>share of raw</th><th>of raw, copied</th><th>processors "
      "busy</th><th>cache</th></tr>\n";
  for (const Operation* operation : operations_of(run)) {
    const Summary share = share_of_ceiling(*operation);
    out += fmt::format(
        "<tr><td class=\"left\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
        "<td>{} <span class=\"range\">({} – {})</span></td><td>{}</td><td>{}, raw {}</td><td>{}</td></tr>\n",
        xml_text(title_of(*operation)), xml_text(operation->engine), spread(seconds_of(*operation), 1, 3),
        fmt::format("{:.3f}", first_seconds_of(*operation).median), spread(rate_of(*operation), kGiB, 2),
        spread(ceiling_of(*operation), kGiB, 2), percent(share.median), percent(share.min), percent(share.max),
        percent(share_of_copied_ceiling(*operation).median), percent(busy_of(*operation).median),
        percent(ceiling_busy_of(*operation).median),
        operation->kind == Kind::kSave ? "fsynced" : xml_text(operation->cache));
  }
  return out + "</table></div>\n";
}

std::string phase_table(const Operation& operation) {
  std::string out =
      "<table>\n<tr><th class=\"left\">phase</th><th>seconds</th><th>first rank</th><th>share</th><th>bytes</th>"
      "<th>GiB/s</th></tr>\n";
  for (const std::string& phase : phases_of(operation)) {
    const Summary seconds = phase_seconds(operation, phase);
    const auto bytes = phase_bytes(operation, phase);
    const double rate = seconds.median > 0 ? static_cast<double>(bytes) / seconds.median / kGiB : 0;
    out +=
        fmt::format("<tr><td class=\"left\">{}</td><td>{}</td><td>{:.3f}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                    xml_text(phase), spread(seconds, 1, 3), phase_first_seconds(operation, phase).median,
                    percent(phase_share(operation, phase).median), bytes == 0 ? "–" : base::format_size(bytes),
                    bytes == 0 ? "–" : fmt::format("{:.2f}", rate));
  }
  return out + "</table>\n";
}

// A phase has the same colour in all operations.
std::string phase_plot(const Run& run) {
  std::map<std::string, int> colours;
  std::vector<std::pair<std::string, int>> names;
  std::vector<Bar> bars;
  for (const Operation* operation : operations_of(run)) {
    Bar bar{title_of(*operation), {}, seconds_of(*operation).median};
    for (const std::string& phase : phases_of(*operation)) {
      const auto [at, is_new] = colours.emplace(phase, static_cast<int>(colours.size()));
      if (is_new) names.emplace_back(*at);
      bar.parts.push_back({phase, phase_seconds(*operation, phase).median, at->second});
    }
    bars.push_back(std::move(bar));
  }
  return legend(names) + stacked_bars(bars, "s");
}

std::string repeat_plot(const Operation& operation) {
  Series own{std::string(name_of(operation.kind)), kSaveColour, {}, Stroke::kSolid};
  Series ceiling{"raw ceiling, before and after", kCeilingColour, {}, Stroke::kDashed};
  Axes axes{"repeat", "GiB/s", false, {}};
  for (std::size_t r = 0; r < operation.samples.size(); ++r) {
    const Sample& sample = operation.samples[r];
    const auto x = static_cast<double>(r + 1);
    own.points.emplace_back(x, rate_of(operation).values[r] / kGiB);
    ceiling.points.emplace_back(x - 0.25, sample.ceiling_before.bytes_per_second() / kGiB);
    ceiling.points.emplace_back(x + 0.25, sample.ceiling_after.bytes_per_second() / kGiB);
    axes.x_ticks.emplace_back(x, std::to_string(r + 1));
  }
  return legend({{own.name, own.colour}, {ceiling.name, ceiling.colour}}) + line_plot({ceiling, own}, axes);
}

std::string sweep_plot(const Record& record) {
  const auto first = operations_of(record.runs.front());
  std::vector<Series> rates(first.size());
  std::vector<Series> ceilings(first.size());
  std::vector<std::pair<std::string, int>> names;
  Axes axes{"size of the checkpoint", "GiB/s", true, {}};
  for (std::size_t k = 0; k < first.size(); ++k) {
    rates[k] = {title_of(*first[k]), static_cast<int>(k), {}, Stroke::kSolid};
    ceilings[k] = {"raw ceiling of " + rates[k].name, static_cast<int>(k), {}, Stroke::kDashed};
    names.emplace_back(rates[k].name, rates[k].colour);
  }
  for (const Run& run : record.runs) {
    const auto size = static_cast<double>(run.save.bytes);
    axes.x_ticks.emplace_back(size, base::format_size(run.save.bytes));
    const auto operations = operations_of(run);
    for (std::size_t k = 0; k < first.size(); ++k) {
      rates[k].points.emplace_back(size, rate_of(*operations[k]).median / kGiB);
      ceilings[k].points.emplace_back(size, ceiling_of(*operations[k]).median / kGiB);
    }
  }
  std::vector<Series> all = std::move(ceilings);
  all.insert(all.end(), rates.begin(), rates.end());
  return "<h2>Size sweep</h2>\n" + legend(names) + line_plot(all, axes) +
         "<p class=\"note\">Medians. Dashed in the same colour: the raw ceiling of the same ranks.</p>\n";
}

std::string run_section(const Run& run) {
  std::string out =
      fmt::format("<h2>{}</h2>\n<p>{} of sections {} in {}, {}. {}</p>\n", xml_text(run.workload),
                  base::format_size(run.save.bytes), xml_text(run.sections), base::counted(run.save.files, "file"),
                  base::counted(run.save.tensors, "tensor"), xml_text(run.note));
  out += operation_table(run);
  for (const Operation* operation : operations_of(run)) {
    if (const std::string note = size_note(*operation); !note.empty()) out += "<p>Note: " + xml_text(note) + ".</p>\n";
  }
  out +=
      "<p class=\"note\">Median of the repeats (minimum – maximum). Seconds are those of the last rank. A share is a "
      "repeat's rate over the mean of the raw ceilings right before and after it.</p>\n";
  out += "<h3>Phases</h3>\n" + phase_plot(run);
  out +=
      "<p class=\"note\">Each phase with the seconds of its slowest rank; the mark is the whole, a gap before it is in "
      "no phase. Phases of different "
      "slowest ranks, and phases that overlap, add up to more than the whole.</p>\n";
  for (const Operation* operation : operations_of(run)) {
    out += fmt::format("<h3>{}</h3>\n{}{}", xml_text(title_of(*operation)), repeat_plot(*operation),
                       phase_table(*operation));
    out += fmt::format("<p class=\"note\">Verified: {}, {}. Engine {}.</p>\n", xml_text(operation->verified_by),
                       base::format_size(operation->verified_bytes), xml_text(engine_text(*operation)));
  }
  return out;
}

/// "4 ranks in layout fsdp=4 saved 2.00 GiB at 1.50 GiB/s in 1.333 s, 85.0 % of the raw speed of the same ranks."
std::string result_of(const Operation& operation) {
  const bool is_save = operation.kind == Kind::kSave;
  return fmt::format(
      "{} in layout {} {} {} at <b>{:.2f} GiB/s</b> in {:.3f} s, <b>{}</b> of the raw speed of the same ranks.",
      base::counted(static_cast<std::uint64_t>(operation.ranks), "rank"), xml_text(operation.layout),
      is_save ? "saved" : "loaded", base::format_size(operation.bytes), rate_of(operation).median / kGiB,
      seconds_of(operation).median, percent(share_of_ceiling(operation).median));
}

/// The result in words. All bytes of a record were compared: otherwise there is no record.
std::string results(const Record& record) {
  std::string out = "<ul class=\"results\">\n";
  for (const Run& run : record.runs) {
    for (const Operation* operation : operations_of(run)) {
      out += fmt::format("<li>{}: {}</li>\n", xml_text(run.workload), result_of(*operation));
    }
  }
  out += "</ul>\n<p>Medians; every byte was compared.";
  if (!record.machine.job.empty()) out += " " + xml_text(record.machine.job) + ".";
  return out + "</p>\n";
}

std::string memory_table(const MemoryCeilings& memory) {
  std::string out = "<table>\n<tr><th class=\"left\">ceiling</th><th>GiB/s</th></tr>\n";
  const std::pair<const char*, const std::vector<Rate>*> rows[] = {
      {"memory copy", &memory.memcpy}, {"CRC-32C", &memory.crc}, {"MPI exchange", &memory.exchange}};
  for (const auto& [name, rates] : rows) {
    if (rates->empty()) continue;
    out += fmt::format("<tr><td class=\"left\">{}</td><td>{}</td></tr>\n", name, spread(rates_of(*rates), kGiB, 2));
  }
  return out + "</table>\n";
}

}  // namespace

std::string html_report(const Record& record) {
  std::string out = results(record);
  if (record.runs.size() > 1) out += sweep_plot(record);
  for (const Run& run : record.runs) out += run_section(run);
  out += "<h2>Ceilings of memory</h2>\n" + memory_table(record.memory);
  out += "<p class=\"note\">All ranks that save, at the same time.</p>\n";
  out += "<h2>Machine</h2>\n" + machine_table(record);
  return html_page("cairn bench", out);
}

}  // namespace cairn::bench
