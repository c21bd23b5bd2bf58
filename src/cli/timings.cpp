// Formats the phases of a report.
#include "cli/timings.hpp"

#include <fmt/core.h>

#include "base/json.hpp"
#include "base/text.hpp"
#include "cli/table.hpp"

namespace cairn::cli {

std::string throughput(std::uint64_t bytes, double seconds) {
  if (bytes == 0 || seconds <= 0) return "-";
  return fmt::format("{:.2f}", static_cast<double>(bytes) / seconds / 1073741824.0);
}

std::string phase_table(std::span<const Phase> phases, double total_seconds, std::uint64_t total_bytes) {
  Table table({{"phase"},
               {"seconds", Align::kRight},
               {"fastest", Align::kRight},
               {"bytes", Align::kRight},
               {"GiB/s", Align::kRight}});
  for (const Phase& phase : phases) {
    table.add({base::printable(phase.name), fmt::format("{:.3f}", phase.seconds_max),
               fmt::format("{:.3f}", phase.seconds_min), phase.bytes == 0 ? "-" : group_digits(phase.bytes),
               throughput(phase.bytes, phase.seconds_max)});
  }
  table.add({"total", fmt::format("{:.3f}", total_seconds), "", group_digits(total_bytes),
             throughput(total_bytes, total_seconds)});
  return table.text();
}

base::Json phases_json(std::span<const Phase> phases) {
  base::Json out = base::Json::array();
  for (const Phase& phase : phases) {
    out.push_back({{"name", phase.name},
                   {"seconds_max", phase.seconds_max},
                   {"seconds_min", phase.seconds_min},
                   {"size_bytes", phase.bytes}});
  }
  return out;
}

}  // namespace cairn::cli
