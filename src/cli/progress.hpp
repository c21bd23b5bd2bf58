// How far long work has come while it runs, and how long its phases took.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/json.hpp"
#include "cairn/checkpoint.hpp"
#include "checkpoint/call.hpp"
#include "cli/output.hpp"

namespace cairn::cli {

// Says how far long work has come: one line on the terminal, which leaves nothing behind, or lines in a job's log.

/// While it lives, it listens to the progress of calls on this thread (checkpoint/call.hpp): rank 0 updates one line on standard error, at most ten times a second, and erases it at the end;
/// where standard error is not a terminal (under mpirun it never is) it writes a line every 10 seconds, or every
/// CAIRN_PROGRESS_S (0: none). At most one at a time.
class ProgressLine {
 public:
  /// `step`: of the checkpoint that is worked on, where there are several.
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

/// Bytes of all ranks over seconds of the slowest, in GiB/s; "-" when either is 0.
std::string throughput(std::uint64_t bytes, double seconds);

/// What each save and load says: its warnings, its engine and why, and a table with the columns phase, seconds (slowest
/// rank), fastest, bytes, GiB/s and a last row "total" of so many bytes.
void print_run(Output& output, const Report& report, std::uint64_t total_bytes);

/// Adds "engine", "engine_reason", "seconds_max" and "phases".
void add_run(base::Json& document, const Report& report);

/// [{"name", "seconds_max", "seconds_min", "size_bytes"}].
base::Json phases_json(std::span<const Phase> phases);

}  // namespace cairn::cli
