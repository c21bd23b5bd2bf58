// Reports of saves and loads: progress while they run, results when they finish.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/checks.hpp"
#include "cairn/error.hpp"
#include "cairn/retention.hpp"

namespace cairn {

/// The progress of a call (Options::progress).
struct Progress {
  /// "writing", "fsync", "reading back", "reading", "verifying", "comparing"; valid during the callback only.
  std::string_view phase;
  /// While data files are written and read ("writing", "reading", "fsync"): bytes of all ranks, estimated from this
  /// rank's part; in other phases: bytes of this rank. Within a phase, falls only when the phase begins again
  /// ("reading", in a load too large for one plan). Equals the total at the end of a phase unless the call fails.
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_total = 0;
  std::optional<std::uint64_t> step;  ///< step of the checkpoint, if the checkpoint is in a root
  /// Save into a root: seconds that the whole save should take at the rate of the last saves (as in Report); 0:
  /// unknown, or on a rank other than 0.
  double expected_seconds = 0;
};

/// One phase of a save or load. Seconds are those of the slowest and the fastest rank; bytes are the sum over all
/// ranks.
struct Phase {
  std::string name;
  double seconds_max = 0;
  double seconds_min = 0;
  std::uint64_t bytes = 0;
};

/// Error of a codec on the moments of one tensor. Errors are fractions: 0.005 is half a percent.
struct CodingError {
  std::string section;
  std::string name;  ///< name of the first moment
  std::string codec;
  std::uint64_t elements = 0;
  std::uint64_t elements_measured = 0;  ///< all elements, or a sample if the errors are estimates
  double update_rms = 0;                ///< RMS error of the update, m/(sqrt(v) + 1e-8), over the update's RMS
  double update_max = 0;                ///< largest error of the update, over the same RMS
  double root_rms = 0;                  ///< RMS relative error of sqrt(v), where v > 0
  double root_max = 0;
  double first_max = 0;  ///< largest absolute error of the first moment
  double second_max = 0;
};

struct TensorName {
  std::string section;
  std::string name;

  friend bool operator==(const TensorName&, const TensorName&) = default;
};

/// A checkpoint that load_latest() passed over.
struct SkippedStep {
  std::uint64_t step = 0;
  std::filesystem::path directory;
  std::string problem;  ///< the damage and its place, on one line
};

/// The time for which save_async() blocked the program, on the slowest rank.
struct Stall {
  double seconds = 0;                ///< the whole call, without the wait for the previous save
  double wait_seconds = 0;           ///< wait for the previous save
  double plan_seconds = 0;           ///< part of `seconds`; near zero when the plan is used again
  double prepare_seconds = 0;        ///< part of `seconds`: allocating memory, which later snapshots use again
  double copy_seconds = 0;           ///< part of `seconds`: copying the state
  std::uint64_t snapshot_bytes = 0;  ///< bytes copied by all ranks; the rest was gathered while the program waited
  std::uint64_t pool_bytes = 0;      ///< memory kept for snapshots, on the rank with the most
};

struct Report {
  std::uint64_t step = 0;  ///< step saved or loaded; 0 for a staging file, or for a directory that is not a step's
  std::filesystem::path directory;
  std::uint64_t bytes = 0;  ///< bytes of tensors
  std::uint64_t tensors = 0;
  std::uint64_t files = 0;
  std::string engine;
  std::string engine_reason;                        ///< reason for the choice of this engine
  std::map<std::string, std::string> engine_hints;  ///< hints that MPI-IO reports for the first file; empty without
                                                    ///< MPI-IO
  double seconds = 0;                               ///< the whole call, slowest rank
  /// Save into a root: the seconds that were expected when it began, at the median rate of the last five good saves in
  /// the root's log; 0: there was none. On rank 0.
  double expected_seconds = 0;
  bool plan_reused = false;     ///< save: the state was described as in the previous save; blobs may differ in size
  std::optional<Stall> stall;   ///< only for asynchronous saves
  std::string earlier_failure;  ///< save: the reason why the previous asynchronous save failed
  std::vector<Phase> phases;
  std::vector<std::string> warnings;       ///< also in the log (log.hpp); some only on rank 0
  std::vector<CodingError> coding_errors;  ///< save with Quantisation::report: by section and name; on rank 0
  /// Tensors on which a codec is less exact than its figures (src/quant/README.md), the worst first; on rank 0, and
  /// also in one of `warnings`. Without Quantisation::report or max_update_error, only a sample of blocks is examined.
  std::vector<CodingError> beyond_figures;
  /// Save: the earlier step with which this save was compared, if any, and the unchanged part of each section, in the
  /// order of the files; the same on all ranks.
  std::optional<std::uint64_t> unchanged_since;
  std::vector<SectionChange> unchanged;
  /// Save with Options::reuse: size of the files that were not written again, whole files with their headers, and the
  /// step that had them; the same on all ranks.
  std::uint64_t reused_bytes = 0;
  std::uint64_t reused_files = 0;
  std::optional<std::uint64_t> reused_from;
  std::vector<StepFate> pruned;               ///< save with Options::retention: the checkpoints that went; on rank 0
  std::uint64_t freed_bytes = 0;              ///< as Pruning::freed_bytes; on rank 0
  std::optional<NonFiniteValues> non_finite;  ///< save with Checks::non_finite
  std::vector<TensorName> missing;            ///< load: optional targets of this rank that the checkpoint does not have
  /// The damaged checkpoints that load_latest() skipped, newest first; the same on all ranks, and also in `warnings`.
  std::vector<SkippedStep> skipped;
  /// Load of a checkpoint that recorded its environment (EnvironmentOptions): a line for each thing that differs now,
  /// such as "MPI library: saved with Open MPI v4.1.4, now MPICH 4.0". On rank 0.
  std::vector<std::string> environment_changes;
  /// Load with LoadOptions::list_not_loaded: selected tensors of the checkpoint for which no rank had a target, by
  /// section and name; on rank 0. Moments are listed, their codes and scales are not.
  std::vector<TensorName> not_loaded;
};

/// The end of an asynchronous save (AsyncOptions::on_done). One of the two pointers is null; the other is valid during
/// the callback only.
struct SaveEnd {
  std::uint64_t step = 0;
  bool was_cancelled = false;      ///< SaveTicket::cancel() ended the save; `error` is a kState
  const Report* report = nullptr;  ///< the checkpoint is committed: the report that SaveTicket::wait() returns
  const Error* error = nullptr;    ///< the save failed or was cancelled: the error that SaveTicket::wait() throws
};

}  // namespace cairn
