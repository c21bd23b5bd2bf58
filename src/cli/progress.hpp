// Progress of long work, and the times of its phases.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/json.hpp"
#include "cairn/checkpoint.hpp"
#include "checkpoint/progress.hpp"
#include "cli/output.hpp"

namespace cairn::cli {

/// Shows the progress of calls on this thread (checkpoint/progress.hpp) while the object exists; one object at a time.
/// Rank 0 updates one line on standard error, at most ten times a second, and erases it at the end. If standard error
/// is not a terminal, as under mpirun, rank 0 writes a line every 10 s, or every CAIRN_PROGRESS_S seconds (0: none).
/// A quiet output shows none.
class ProgressLine {
 public:
  /// `step`: step of the current checkpoint, if there are several checkpoints.
  explicit ProgressLine(const Output& output, std::optional<std::uint64_t> step = {});
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  checkpoint::ProgressScope::Tell tell_;
  bool draws_;
  std::optional<checkpoint::ProgressScope> scope_;
};

// Phases of a save, load or check as a table and as JSON.

/// All ranks' bytes divided by the slowest rank's seconds, in GiB/s; "-" if either number is 0.
std::string throughput(std::uint64_t bytes, double seconds);

/// Prints the warnings of a save or load, its engine with the reason, and a table with the columns phase, seconds
/// (slowest rank), fastest, bytes, GiB/s and a last row "total" with `total_bytes`.
void print_run(Output& output, const Report& report, std::uint64_t total_bytes);

/// Adds "engine", "engine_reason", "seconds_max" and "phases".
void add_run(base::Json& document, const Report& report);

/// [{"name", "seconds_max", "seconds_min", "size_bytes"}].
base::Json phases_json(std::span<const Phase> phases);

}  // namespace cairn::cli
