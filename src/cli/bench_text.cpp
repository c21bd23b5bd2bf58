#include "cli/bench_text.hpp"

#include <fmt/core.h>

#include "base/text.hpp"
#include "cli/table.hpp"

namespace cairn::cli {
namespace {

using bench::Kind;
using bench::Operation;
using bench::Summary;

constexpr double kGiB = 1073741824.0;

std::string spread(const Summary& summary, double unit, int digits) {
  return fmt::format("{:.{}f} ({:.{}f}-{:.{}f})", summary.median / unit, digits, summary.min / unit, digits,
                     summary.max / unit, digits);
}

std::string percents(const Summary& summary) {
  return fmt::format("{:.0f} % ({:.0f}-{:.0f})", 100 * summary.median, 100 * summary.min, 100 * summary.max);
}

std::string operation_table(const bench::Run& run) {
  Table table({{"operation"},
               {"ranks", Align::kRight},
               {"layout"},
               {"engine"},
               {"seconds", Align::kRight},
               {"first rank", Align::kRight},
               {"GiB/s", Align::kRight},
               {"raw GiB/s", Align::kRight},
               {"share of raw", Align::kRight},
               {"of raw, copied", Align::kRight},
               {"processors busy", Align::kRight},
               {"cache"}});
  const auto add = [&](const Operation& operation) {
    table.add({std::string(name_of(operation.kind)), std::to_string(operation.ranks), base::printable(operation.layout),
               operation.engine, spread(seconds_of(operation), 1, 3),
               fmt::format("{:.3f}", first_seconds_of(operation).median), spread(rate_of(operation), kGiB, 2),
               spread(ceiling_of(operation), kGiB, 2), percents(bench::share_of_ceiling(operation)),
               percents(bench::share_of_copied_ceiling(operation)),
               fmt::format("{:.0f} %, raw {:.0f} %", 100 * busy_of(operation).median,
                           100 * ceiling_busy_of(operation).median),
               operation.kind == Kind::kSave ? "fsynced" : operation.cache});
  };
  add(run.save);
  for (const Operation& load : run.loads) add(load);
  return table.text();
}

/// Why a small state is so far below the raw speed; empty when it is large enough.
std::string size_note(const Operation& operation) {
  const bench::FixedCosts costs = fixed_costs_of(operation);
  if (costs.share <= bench::kFixedShare || costs.size_bytes == 0) return {};
  return fmt::format(
      "\nnote: {:.0f} % of the {}'s time, {:.3f} s, are plan, open and commit, which cost the same whatever the size: "
      "shares of "
      "raw say little below about {}, where they are {:.0f} %",
      100 * costs.share, name_of(operation.kind), costs.seconds, base::format_size(costs.size_bytes),
      100 * bench::kFixedShare);
}

std::string phase_table(const Operation& operation) {
  Table table({{"phase"},
               {"seconds", Align::kRight},
               {"first rank", Align::kRight},
               {"share", Align::kRight},
               {"bytes", Align::kRight},
               {"GiB/s", Align::kRight}});
  for (const std::string& phase : phases_of(operation)) {
    const Summary seconds = phase_seconds(operation, phase);
    const std::uint64_t bytes = phase_bytes(operation, phase);
    const double rate = seconds.median > 0 ? static_cast<double>(bytes) / seconds.median / kGiB : 0;
    table.add({base::printable(phase), spread(seconds, 1, 3),
               fmt::format("{:.3f}", phase_first_seconds(operation, phase).median),
               fmt::format("{:.1f} %", 100 * phase_share(operation, phase).median),
               bytes == 0 ? "-" : group_digits(bytes), bytes == 0 ? "-" : fmt::format("{:.2f}", rate)});
  }
  return table.text();
}

std::string memory_line(const bench::MemoryCeilings& memory) {
  std::string out = fmt::format("memory ceilings, GiB/s: memcpy {}, CRC-32C {}",
                                spread(rates_of(memory.memcpy), kGiB, 1), spread(rates_of(memory.crc), kGiB, 1));
  if (!memory.exchange.empty()) out += fmt::format(", MPI exchange {}", spread(rates_of(memory.exchange), kGiB, 1));
  return out;
}

std::string run_text(const bench::Run& run) {
  std::string out = fmt::format("\nworkload {}: {} ({}), sections {}, {} in {}\n", base::printable(run.workload),
                                counted(run.save.bytes, "byte"), base::format_size(run.save.bytes), run.sections,
                                counted(run.save.tensors, "tensor"), counted(run.save.files, "file"));
  if (!run.note.empty()) out += run.note + "\n";
  out += "engine " + base::printable(engine_text(run.save), 1000) + "\n";
  out += operation_table(run);
  out += size_note(run.save);
  for (const Operation& load : run.loads) out += size_note(load);
  std::vector<const Operation*> operations = {&run.save};
  for (const Operation& load : run.loads) operations.push_back(&load);
  for (const Operation* operation : operations) {
    out += fmt::format("\n\n{} by {}, {}; verified: {}\n{}", name_of(operation->kind),
                       counted(static_cast<std::uint64_t>(operation->ranks), "rank"),
                       base::printable(operation->layout), operation->verified_by, phase_table(*operation));
  }
  return out;
}

}  // namespace

std::string bench_text(const bench::Record& record) {
  const bench::Machine& machine = record.machine;
  std::string out =
      fmt::format("{} on {}, {}, {} of {}; {}\n", counted(static_cast<std::uint64_t>(record.ranks), "rank"),
                  counted(machine.hosts.size(), "host"), base::printable(machine.processor), machine.mount.type,
                  base::printable(machine.mount.source),
                  base::printable(machine.mpi_library.substr(0, machine.mpi_library.find(','))));
  out += fmt::format("median (minimum-maximum) of {} after {} of warm-up; raw: {}, requests of {}, {} in flight\n",
                     counted(record.repeats, "repeat"), record.warm_up, name_of(record.raw.method),
                     base::format_size(record.raw.request_bytes), record.raw.in_flight);
  out += memory_line(record.memory) + "\n";
  for (const bench::Run& run : record.runs) out += run_text(run) + "\n";
  out.pop_back();
  return out;
}

}  // namespace cairn::cli
