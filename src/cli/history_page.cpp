#include "cli/history_page.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/text.hpp"
#include "bench/html_page.hpp"
#include "bench/svg_plot.hpp"
#include "cli/list.hpp"
#include "cli/table.hpp"
#include "life/duration.hpp"

namespace cairn::cli {
namespace {

using bench::xml_text;
using format::LogCall;
using format::LogSum;
using life::shown_duration;

constexpr double kGiB = 1073741824.0;
constexpr double kMinute = 60;
constexpr double kSecondMs = 1000;
constexpr std::size_t kMostPoints = 300;  ///< of one line of a plot
constexpr std::size_t kMostRows = 50;     ///< of one table

enum Colour { kSaves, kLoads, kBackground, kAdvice, kSums, kBad = 5 };

using Point = std::pair<double, double>;  ///< Unix time in ms, and a value

/// One point for each group of neighbours, so that there are at most kMostPoints: the median of the group, at its last
/// time.
std::vector<Point> thinned(std::vector<Point> points) {
  if (points.size() <= kMostPoints) return points;
  const std::size_t group = (points.size() + kMostPoints - 1) / kMostPoints;
  std::vector<Point> out;
  for (std::size_t i = 0; i < points.size(); i += group) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>(std::min(points.size(), i + group));
    const double time = (end - 1)->first;
    const auto middle = begin + (end - begin) / 2;
    std::nth_element(begin, middle, end, [](const Point& a, const Point& b) { return a.second < b.second; });
    out.emplace_back(time, middle->second);
  }
  return out;
}

/// The points of the good calls of a kind for which value(call) is not empty.
template <class Value>
std::vector<Point> points_of(const format::RunLog& log, const char* what, Value value) {
  std::vector<Point> points;
  for (const LogCall& call : log.calls) {
    if (!call.is_good(what)) continue;
    if (const std::optional<double> found = value(call)) points.emplace_back(call.time_ms, *found);
  }
  return thinned(std::move(points));
}

/// The means of older calls, at the time of the last one of each sum.
std::vector<Point> sums_of(const format::RunLog& log, const char* what, const char* key, double unit) {
  std::vector<Point> points;
  for (const LogSum& sum : log.sums) {
    const auto found = sum.measures.find(key);
    if (sum.what != what || found == sum.measures.end() || found->second.count == 0) continue;
    points.emplace_back(sum.last_ms, found->second.sum / static_cast<double>(found->second.count) / unit);
  }
  return thinned(std::move(points));
}

std::pair<std::int64_t, std::int64_t> period_of(const format::RunLog& log) {
  std::int64_t first = 0;
  std::int64_t last = 0;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    first = first == 0 ? begin : std::min(first, begin);
    last = std::max(last, end);
  };
  for (const LogSum& sum : log.sums) add(sum.first_ms, sum.last_ms);
  for (const LogCall& call : log.calls) add(call.time_ms, call.time_ms);
  return {first, last};
}

/// "2026-11-27 20:15".
std::string minute_of(std::int64_t time_ms) {
  std::string text = format::log_time(time_ms).substr(0, 16);
  text[10] = ' ';
  return text;
}

class Plots {
 public:
  explicit Plots(const format::RunLog& log) {
    const auto [first, last] = period_of(log);
    constexpr int kTicks = 5;
    constexpr std::size_t kYear = 5;  ///< "2026-"
    for (int i = 0; i < kTicks; ++i) {
      const std::int64_t time = first + (last - first) * i / (kTicks - 1);
      if (i != 0 && first == last) break;
      ticks_.emplace_back(static_cast<double>(time), minute_of(time).substr(kYear));
    }
  }

  /// A heading, the legend, the plot, and its source; nothing if no series has a point.
  [[nodiscard]] std::string plot(const std::string& title, const std::string& unit, std::vector<bench::Series> series,
                                 const std::string& source) const {
    std::erase_if(series, [](const bench::Series& one) { return one.points.empty(); });
    if (series.empty()) return {};
    std::vector<std::pair<std::string, int>> names;
    for (const bench::Series& one : series) names.emplace_back(one.name, one.colour);
    const bench::Axes axes{"time (UTC)", unit, false, ticks_, std::pair(ticks_.front().first, ticks_.back().first)};
    return fmt::format("<h2>{}</h2>\n{}{}<p class=\"note\">Source: {}</p>\n", xml_text(title), bench::legend(names),
                       bench::line_plot(series, axes), xml_text(source));
  }

  [[nodiscard]] std::vector<Point> level(double value) const {
    return {{ticks_.front().first, value}, {ticks_.back().first, value}};
  }

 private:
  std::vector<std::pair<double, std::string>> ticks_;
};

std::string size_plot(const RunPast& past, const Plots& plots) {
  const auto size = [](const LogCall& call) { return std::optional(static_cast<double>(call.bytes) / kGiB); };
  return plots.plot("Size of the checkpoints", "GiB of tensors",
                    {{"each save", kSaves, points_of(past.log, format::kLogSave, size)},
                     {"means of older saves", kSums, sums_of(past.log, format::kLogSave, "bytes", kGiB)}},
                    "key 'bytes' of the log's saves; a codec makes it smaller than the state");
}

std::string stall_plot(const RunPast& past, const Plots& plots) {
  const auto stall = [](const LogCall& call) {
    return std::optional(call.is_async ? call.stall_seconds : call.seconds);
  };
  const auto background = [](const LogCall& call) {
    return call.is_async ? std::optional(call.background_seconds) : std::nullopt;
  };
  return plots.plot(
      "Time of a save", "seconds",
      {{"the program waits (stall)", kSaves, points_of(past.log, format::kLogSave, stall)},
       {"then in the background", kBackground, points_of(past.log, format::kLogSave, background)},
       {"means of older stalls", kSums, sums_of(past.log, format::kLogSave, "stall_seconds", 1)}},
      "keys 'stall_seconds' and 'background_seconds' of asynchronous saves, 'seconds' of others; the slowest rank");
}

std::string rate_plot(const RunPast& past, const Plots& plots) {
  const auto rate = [](const LogCall& call) {
    return call.seconds > 0 ? std::optional(static_cast<double>(call.bytes) / call.seconds / kGiB) : std::nullopt;
  };
  return plots.plot("Throughput", "GiB/s",
                    {{"saves", kSaves, points_of(past.log, format::kLogSave, rate)},
                     {"loads", kLoads, points_of(past.log, format::kLogLoad, rate)}},
                    "'bytes' over 'seconds' of the whole call, in the background or not, with plan and commit");
}

std::string interval_plot(const RunPast& past, const Plots& plots) {
  const auto work = [](const LogCall& call) {
    return call.is_first ? std::nullopt : std::optional(call.work_seconds / kMinute);
  };
  std::vector<bench::Series> series = {
      {"work before each save", kSaves, points_of(past.log, format::kLogSave, work), bench::Stroke::kNone},
      {"means of older saves", kSums, sums_of(past.log, format::kLogSave, "work_seconds", kMinute)}};
  if (past.advice) {
    const SaveIntervals& band = past.advice->likely_band;
    const auto add = [&](const char* name, Colour colour, double seconds) {
      series.push_back({name, colour, plots.level(seconds / kMinute), bench::Stroke::kDashed});
    };
    add("advised", kAdvice, past.advice->best.seconds);
    add("shortest that is nearly as good", kBackground, band.shortest.seconds);
    add("longest", kBackground, band.longest.seconds);
  }
  return plots.plot(
      "Interval between saves, and the advice", "minutes of work", std::move(series),
      "key 'work_seconds' of the log, without the first save of a program; cairn advise with the figures below");
}

std::string bad_plot(const RunPast& past, const Plots& plots) {
  std::vector<Point> points;
  double count = 0;
  for (const LogSum& sum : past.log.sums) {
    count += static_cast<double>(sum.bad());
    if (count > 0) points.emplace_back(sum.last_ms, count);
  }
  for (const LogCall& call : past.log.calls) {
    if (call.is_bad()) points.emplace_back(call.time_ms, ++count);
  }
  if (!points.empty()) points.emplace_back(plots.level(0).back().first, count);
  return plots.plot("Calls that failed or were refused", "number since the log began",
                    {{"failed or refused", kBad, thinned(std::move(points))}}, "key 'outcome' of all lines of the log");
}

std::string bad_table(const RunPast& past) {
  std::string rows;
  std::size_t count = 0;
  for (auto call = past.log.calls.rbegin(); call != past.log.calls.rend() && count < kMostRows; ++call) {
    if (!call->is_bad()) continue;
    ++count;
    rows += fmt::format(
        "<tr><td class=\"left\">{}</td><td class=\"left\">{}</td><td>{}</td><td class=\"left\">{}</td>"
        "<td class=\"left\">{}</td></tr>\n",
        minute_of(call->time_ms), xml_text(call->what), call->step ? std::to_string(*call->step) : "–",
        xml_text(call->outcome), xml_text(call->error));
  }
  if (rows.empty()) return {};
  return "<div class=\"wide\"><table>\n<tr><th class=\"left\">ended (UTC)</th><th class=\"left\">call</th><th>step</th>"
         "<th class=\"left\">outcome</th><th class=\"left\">error</th></tr>\n" +
         rows + fmt::format("</table></div>\n<p class=\"note\">The newest first, {} at most.</p>\n", kMostRows);
}

std::string checkpoint_table(const RunPast& past) {
  const std::map<std::uint64_t, format::StepLog> by_step = format::log_by_step(past.log);
  std::string out =
      "<h2>Checkpoints in the root</h2>\n<div class=\"wide\"><table>\n<tr><th>step</th><th class=\"left\">state</th>"
      "<th>size</th><th class=\"left\">saved (UTC)</th><th>stall, s</th><th>save, s</th><th class=\"left\">verified "
      "(UTC)</th>"
      "</tr>\n";
  std::size_t count = 0;
  for (auto entry = past.checkpoints.rbegin(); entry != past.checkpoints.rend() && count < kMostRows;
       ++entry, ++count) {
    const auto found = by_step.find(entry->step);
    const format::StepLog about = entry->partial || found == by_step.end() ? format::StepLog() : found->second;
    const auto& saved = about.saved;
    const auto& verified = about.verified;
    out += fmt::format(
        "<tr><td>{}</td><td class=\"left\">{}</td><td>{}</td><td class=\"left\">{}</td><td>{}</td><td>{}</td>"
        "<td class=\"left\">{}</td></tr>\n",
        entry->step, state_of(*entry), base::format_size(entry->bytes), saved ? minute_of(saved->time_ms) : "–",
        saved ? fmt::format("{:.2f}", saved->is_async ? saved->stall_seconds : saved->seconds) : "–",
        saved ? fmt::format("{:.2f}", saved->seconds) : "–",
        verified ? (verified->is_good() ? "" : "bad, ") + minute_of(verified->time_ms) : "–");
  }
  out += "</table></div>\n";
  out += fmt::format(
      "<p class=\"note\">{} in all, the newest first, {} at most. Size: of the files, from the manifests; times: from "
      "the log.</p>\n",
      xml_text(counted(past.checkpoints.size(), "checkpoint")), kMostRows);
  return out;
}

std::string advice_table(const RunPast& past) {
  std::string out = "<h2>Advice</h2>\n";
  if (!past.advice) return out + fmt::format("<p>There is none: {}.</p>\n", xml_text(past.why_no_advice));
  const Advice& advice = *past.advice;
  out += "<table>\n<tr><th class=\"left\">cost</th><th>seconds</th><th>waste, % of the time</th></tr>\n";
  for (const CostShare& cost : advice.costs) {
    out += fmt::format("<tr><td class=\"left\">{}</td><td>{:.3g}</td><td>{:.2f}</td></tr>\n", name_of(cost.term),
                       cost.seconds, 100 * cost.waste);
  }
  out += fmt::format("<tr><td class=\"left\">work done again</td><td>–</td><td>{:.2f}</td></tr>\n",
                     100 * advice.lost_work);
  out += fmt::format("<tr><td class=\"left\">all</td><td>–</td><td>{:.2f}</td></tr>\n</table>\n<ul>\n",
                     100 * advice.best.waste);
  out += fmt::format("<li>MTBF {}</li>\n", xml_text(shown_duration(advice.mtbf_s)));
  for (const std::string& note : past.advice_notes) out += fmt::format("<li>{}</li>\n", xml_text(note));
  return out + "</ul>\n";
}

/// The waste at the interval that was kept, by the costs of the advice.
double waste_as_saved(const RunPast& past) {
  return waste_at(past.costs, past.advice->mtbf_s, past.history.interval_s.median);
}

}  // namespace

std::vector<std::string> sentences_of(const RunPast& past) {
  const RunHistory& history = past.history;
  std::vector<std::string> out;
  if (history.saves == 0) {
    out.push_back(past.log.calls.empty() && past.log.sums.empty()
                      ? "the root has no log: nothing was saved since it has one"
                      : "the log has no save that was good");
    return out;
  }
  const auto [first, last] = period_of(past.log);
  out.push_back(fmt::format("{} of run '{}' in {}, until {} UTC; {}", counted(history.saves, "good save"),
                            base::printable(history.run_id),
                            shown_duration(static_cast<double>(last - first) / kSecondMs), minute_of(last),
                            history.bad == 0 ? "no call failed" : counted(history.bad, "call") + " failed or refused"));
  if (history.interval_s.calls != 0) {
    std::string text = fmt::format("saved every {} of work, with a stall of {}",
                                   shown_duration(history.interval_s.median), shown_duration(history.stall_s.median));
    if (past.advice && history.interval_s.median > 0) {
      text += fmt::format("; the advice is {} (waste {:.2f} % of the time in place of {:.2f} %)",
                          shown_duration(past.advice->best.seconds), 100 * past.advice->best.waste,
                          100 * waste_as_saved(past));
    }
    out.push_back(std::move(text));
  }
  out.push_back(fmt::format("{} in {} of work and saves; {}",
                            counted(history.programs == 0 ? 0 : history.programs - 1, "restart"),
                            shown_duration(history.up_s), counted(history.loads, "load")));
  std::uint64_t bytes = 0;
  std::uint64_t complete = 0;
  const root::RootEntry* newest = nullptr;
  for (const root::RootEntry& entry : past.checkpoints) {
    bytes += entry.bytes;
    if (!entry.is_complete() || entry.is_void || entry.part) continue;
    ++complete;
    newest = &entry;
  }
  out.push_back(fmt::format("{} in the root, {} complete, {} in all{}", counted(past.checkpoints.size(), "checkpoint"),
                            complete, base::format_size(bytes),
                            newest == nullptr ? "" : fmt::format("; the highest complete step is {}", newest->step)));
  if (past.log.damaged + past.log.newer != 0) {
    out.push_back(fmt::format("{} of the log could not be read", counted(past.log.damaged + past.log.newer, "line")));
  }
  return out;
}

std::string history_page(const RunPast& past) {
  std::string body = "<ul class=\"results\">\n";
  for (const std::string& sentence : sentences_of(past)) body += fmt::format("<li>{}</li>\n", xml_text(sentence));
  body += "</ul>\n<table class=\"facts\">\n" + bench::fact_row("root", past.root.string()) +
          bench::fact_row("made", minute_of(past.now_ms) + " UTC") +
          bench::fact_row("source", fmt::format("{} of {} and {} of older calls in {}, and the root's manifests",
                                                counted(past.log.calls.size(), "line"), "calls",
                                                counted(past.log.sums.size(), "sum"), format::kRunLogFile)) +
          "</table>\n";
  if (past.history.saves != 0) {
    const Plots plots(past.log);
    body += interval_plot(past, plots) + stall_plot(past, plots) + rate_plot(past, plots) + size_plot(past, plots) +
            bad_plot(past, plots);
  }
  body += bad_table(past);
  if (past.history.saves != 0) body += advice_table(past);
  body += checkpoint_table(past);
  return bench::html_page(fmt::format("cairn report of {}", past.root.string()), body);
}

}  // namespace cairn::cli
