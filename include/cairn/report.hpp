// What saves and loads report, while they run and when they are done.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/checks.hpp"

namespace cairn {

/// How far a call has come (Options::progress).
struct Progress {
  /// "writing", "fsync", "reading back", "reading", "verifying", "comparing"; valid during the callback only.
  std::string_view phase;
  /// Of all ranks while data files are written and read ("writing", "reading", "fsync"), as this rank estimates by its
  /// own part; in other phases of this rank. Falls only where a phase begins again ("reading", in a load too large for one
  /// plan); equals the total at its end unless the call fails.
  std::uint64_t bytes_done = 0;
  std::uint64_t bytes_total = 0;
  std::optional<std::uint64_t> step;  ///< of a checkpoint in a root
};

/// One phase of a save or load. Seconds are of the slowest and the fastest rank, bytes of all ranks together.
struct Phase {
  std::string name;
  double seconds_max = 0;
  double seconds_min = 0;
  std::uint64_t bytes = 0;
};

/// What a codec did to the moments of one tensor. Shares: 0.005 is half a percent.
struct CodingError {
  std::string section;
  std::string name;  ///< of the first moment
  std::string codec;
  std::uint64_t elements = 0;
  std::uint64_t elements_measured = 0;  ///< all of them, or a sample: then the errors are estimates
  double update_rms = 0;                ///< RMS of the error of m/(sqrt(v) + 1e-8) over the RMS of the update
  double update_max = 0;                ///< its largest error, over the same
  double root_rms = 0;                  ///< RMS of the relative error of sqrt(v), where v > 0
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
  std::string problem;  ///< what is wrong with it, and where: one line
};

/// What an asynchronous save cost the program that went on: how long save_async() kept it. Seconds are of the slowest
/// rank.
struct Stall {
  double seconds = 0;                ///< of the whole call, but for a wait for the save before it
  double wait_seconds = 0;           ///< for the save before it
  double plan_seconds = 0;           ///< part of `seconds`; next to nothing where the plan is used again
  double prepare_seconds = 0;        ///< likewise, for memory that later snapshots use again: the first save's, or none
  double copy_seconds = 0;           ///< likewise
  std::uint64_t snapshot_bytes = 0;  ///< copied, of all ranks; what is not was gathered while the program waited
  std::uint64_t pool_bytes = 0;      ///< kept for snapshots, on the rank that keeps most
};

struct Report {
  std::uint64_t step = 0;  ///< that was saved or loaded; of a staging file or another directory than a step's, 0
  std::filesystem::path directory;
  std::uint64_t bytes = 0;  ///< of tensors
  std::uint64_t tensors = 0;
  std::uint64_t files = 0;
  std::string engine;
  std::string engine_reason;                        ///< why it was that one
  std::map<std::string, std::string> engine_hints;  ///< what MPI-IO says of the first file; empty without MPI-IO
  double seconds = 0;                               ///< whole call, slowest rank
  bool plan_reused = false;     ///< of a save: the state was described as in the one before; blobs may differ in size
  std::optional<Stall> stall;   ///< of an asynchronous save
  std::string earlier_failure;  ///< of a save: why the asynchronous one before it failed
  std::vector<Phase> phases;
  std::vector<std::string> warnings;       ///< also in the log (log.hpp); some are of rank 0 alone
  std::vector<CodingError> coding_errors;  ///< of a save that asked for them, by section and name; on rank 0
  /// Tensors that q8 or q4 codes worse than its figures (src/quant/README.md), the worst first; on rank 0. One of
  /// `warnings` says so too. Without Quantisation::report or max_update_error they are found by a sample of the blocks.
  std::vector<CodingError> beyond_figures;
  /// Of a save: the step that it was compared with, where there was one, and of each section how much of it is as it was
  /// there, in the order of the files; the same on all ranks.
  std::optional<std::uint64_t> unchanged_since;
  std::vector<SectionChange> unchanged;
  std::optional<NonFiniteValues> non_finite;  ///< of a save with Checks::non_finite
  std::vector<TensorName> missing;  ///< of a load: optional targets of this rank that the checkpoint does not have
  /// Of load_latest(): the checkpoints before which it tried to load, newest first, the same on all ranks. Each is one of
  /// `warnings`, too.
  std::vector<SkippedStep> skipped;
  /// Of a load that asked for them: selected tensors of the checkpoint for which no rank had a target, by section and
  /// name; on rank 0. Moments count, their codes and scales do not.
  std::vector<TensorName> not_loaded;
};

}  // namespace cairn
