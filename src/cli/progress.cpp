// The progress line, and the phases of a report.
#include "cli/progress.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/log.hpp"
#include "base/text.hpp"
#include "cli/table.hpp"

namespace cairn::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLineSeconds = 10;
constexpr const char* kLineVariable = "CAIRN_PROGRESS_S";
constexpr const char* kErase = "\r\x1b[K";

std::string text_of(const Progress& progress) {
  const std::uint64_t total = progress.bytes_total;
  const std::string of_step = progress.step ? fmt::format(" step {}:", *progress.step) : "";
  std::string text =
      fmt::format("cairn: {}{} {}", base::printable(progress.phase), of_step, base::format_size(progress.bytes_done));
  if (total != 0) {
    const double percent =
        100.0 * static_cast<double>(std::min(progress.bytes_done, total)) / static_cast<double>(total);
    text += fmt::format(" of {} ({:.0f} %)", base::format_size(total), percent);
  }
  if (progress.expected_seconds > 0) text += fmt::format(", about {:.1f} s in all", progress.expected_seconds);
  return text;
}

void write(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

/// Replaces the last line.
void draw(const Progress& progress) { write(kErase + text_of(progress)); }

/// Writes a line at intervals, for job logs; work shorter than an interval writes none.
class Liner {
 public:
  explicit Liner(double seconds)
      : interval_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
  void operator()(const Progress& progress) {
    const auto now = Clock::now();
    if (now < due_) return;
    due_ = now + interval_;
    write(text_of(progress) + "\n");
  }

 private:
  Clock::duration interval_;
  Clock::time_point due_ = Clock::now() + interval_;
};

/// Seconds between lines; 0: no lines.
double line_seconds() {
  const char* text = std::getenv(kLineVariable);
  if (text == nullptr || *text == '\0') return kLineSeconds;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  if (*end == '\0' && seconds >= 0) return std::min(seconds, 1e6);
  base::warn_once(fmt::format("{} is '{}', which is no number of seconds: a line every {:g}", kLineVariable,
                              base::printable(text), kLineSeconds));
  return kLineSeconds;
}

checkpoint::ProgressScope::Tell teller(const Output& output) {
  if (output.is_quiet()) return {};
  if (output.error_is_terminal()) return draw;
  if (!output.enabled()) return {};
  const double seconds = line_seconds();
  if (seconds > 0) return Liner(seconds);
  return {};
}

}  // namespace

ProgressLine::ProgressLine(const Output& output, std::optional<std::uint64_t> step)
    : tell_(teller(output)), draws_(output.error_is_terminal() && !output.is_quiet()) {
  scope_.emplace(tell_, step);
}

ProgressLine::~ProgressLine() {
  scope_.reset();  // may report the end of the last phase
  if (draws_) write(kErase);
}

std::string throughput(std::uint64_t bytes, double seconds) {
  if (bytes == 0 || seconds <= 0) return "-";
  return fmt::format("{:.2f}", static_cast<double>(bytes) / seconds / 1073741824.0);
}

void print_run(Output& output, const Report& report, std::uint64_t total_bytes) {
  for (const std::string& warning : report.warnings) base::warn_once(warning);
  output.summary("engine " + report.engine + ": " + base::printable(report.engine_reason, 1000));
  Table table({"phase", ">seconds", ">fastest", ">bytes", ">GiB/s"});
  for (const Phase& phase : report.phases) {
    table.add({base::printable(phase.name), fmt::format("{:.3f}", phase.seconds_max),
               fmt::format("{:.3f}", phase.seconds_min), phase.bytes == 0 ? "-" : group_digits(phase.bytes),
               throughput(phase.bytes, phase.seconds_max)});
  }
  table.add({"total", fmt::format("{:.3f}", report.seconds), "", group_digits(total_bytes),
             throughput(total_bytes, report.seconds)});
  output.summary(table.text());
}

void add_run(base::Json& document, const Report& report) {
  document["engine"] = report.engine;
  document["engine_reason"] = report.engine_reason;
  document["seconds_max"] = report.seconds;
  document["phases"] = phases_json(report.phases);
}

base::Json phases_json(std::span<const Phase> phases) {
  return base::Json::array_of(phases, [](const Phase& phase) -> base::Json {
    return {{"name", phase.name},
            {"seconds_max", phase.seconds_max},
            {"seconds_min", phase.seconds_min},
            {"size_bytes", phase.bytes}};
  });
}

}  // namespace cairn::cli
