// A benchmark's results as values, from which every table, plot and document is made.
//
// Raw measurements are kept (one Sample per repeat); everything derived is a function here, with its formula.
// bench/README.md also has the formulas.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/ceilings.hpp"
#include "bench/machine.hpp"
#include "bench/statistics.hpp"
#include "cairn/checkpoint.hpp"

namespace cairn::bench {

/// Incremented when a JSON field or a CSV column is removed or changes its meaning.
inline constexpr int kRecordVersion = 1;

/// One repeat of a save or a load.
struct Sample {
  double seconds = 0;        ///< from a barrier to the return of the last rank
  double seconds_first = 0;  ///< from a barrier to the return of the first rank
  std::vector<Phase> phases;
  Rate ceiling_before;  ///< raw write (or read) of the same number of bytes by the same ranks
  Rate ceiling_after;
  Rate copied_ceiling;      ///< raw write (or read) with one copy of every byte (RawWay::kCopied)
  double busy_share = 0;    ///< as in Rate
  double cached_share = 0;  ///< loads: share of the files in the page cache before the load, on the worst node
};

enum class Kind { kSave, kLoad };

/// A save, or a load in one layout, with all its repeats.
struct Operation {
  Kind kind = Kind::kSave;
  int ranks = 0;
  std::string layout;
  std::string engine;
  std::string engine_reason;
  std::map<std::string, std::string> engine_hints;  ///< hints in force, from MPI-IO; empty without MPI-IO
  std::string ceiling_method;
  std::string cache;  ///< loads: cache_label() of the worst repeat
  bool cache_drop_all = false;
  bool plan_reused = false;
  bool checkpointer_kept = false;     ///< one Checkpointer for all repeats: buffers exist after the first
  std::uint64_t bytes = 0;            ///< bytes of the checkpoint's tensors, from which rates are computed
  std::uint64_t delivered_bytes = 0;  ///< loads: bytes delivered to all ranks, including replicas
  std::uint64_t tensors = 0;
  std::uint64_t files = 0;
  std::uint64_t verified_bytes = 0;  ///< bytes compared, or checked by verify, in every repeat
  std::string verified_by;
  std::vector<Sample> samples;
};

/// One workload: its save and its loads.
struct Run {
  std::string workload;
  std::string note;
  std::string sections;
  Operation save;
  std::vector<Operation> loads;
};
/// The save and the loads.
std::vector<const Operation*> operations_of(const Run& run);

/// Ceilings other than storage, measured by the ranks that save; one Rate per repeat.
struct MemoryCeilings {
  std::vector<Rate> memcpy;
  std::vector<Rate> crc;
  std::vector<Rate> exchange;  ///< empty on one rank
};

struct Record {
  Machine machine;
  std::string command_line;
  std::string directory;
  int ranks = 0;
  std::uint64_t repeats = 0;
  std::uint64_t warm_up = 0;
  std::string engine_asked;
  std::uint64_t aggregators_per_node = 0;  ///< 0: chosen for the file system
  std::uint64_t memory_budget_bytes = 0;
  std::uint64_t max_file_bytes = 0;
  ReadBack read_back = ReadBack::kOff;  ///< included in the time of a save
  RawOptions raw;
  MemoryCeilings memory;
  std::vector<Run> runs;
};

std::string_view name_of(Kind kind);
/// "direct: reason", and with MPI-IO "; hints a=1 b=2".
std::string engine_text(const Operation& operation);

// Figures derived from an operation, with one value per repeat unless the comment says otherwise.
Summary seconds_of(const Operation& operation);

/// Costs of a save or load that do not depend on its size: the sum of the medians of the phases plan, open and commit.
struct FixedCosts {
  double seconds = 0;
  double share = 0;  ///< fraction of the time of all phases
  /// The size from which on these costs are at most kFixedShare of the time, if all other phases grow with the size; 0
  /// without other phases.
  std::uint64_t size_bytes = 0;
};
inline constexpr double kFixedShare = 0.1;
FixedCosts fixed_costs_of(const Operation& operation);
/// A sentence that explains why the rate of a small state is far below the raw speed; empty for a large state.
std::string size_note(const Operation& operation);
Summary first_seconds_of(const Operation& operation);
/// bytes / seconds, in bytes per second.
Summary rate_of(const Operation& operation);
/// Bytes per second of each ceiling, before and after each repeat in turn: two values per repeat.
Summary ceiling_of(const Operation& operation);
/// Rate over the mean of the ceilings before and after the same repeat.
double share_of_ceiling(const Operation& operation, const Sample& sample);
Summary share_of_ceiling(const Operation& operation);
/// As ceiling_of() and share_of_ceiling(), for the copied ceiling; one value per repeat.
Summary copied_ceiling_of(const Operation& operation);
Summary share_of_copied_ceiling(const Operation& operation);
/// Busy share of processors on the busiest host during the operation, and during both ceilings of each repeat in turn.
Summary busy_of(const Operation& operation);
Summary ceiling_busy_of(const Operation& operation);
/// Seconds of the phase's slowest rank, and of its first (fastest) rank; 0 in a repeat without the phase.
Summary phase_seconds(const Operation& operation, const std::string& phase);
Summary phase_first_seconds(const Operation& operation, const std::string& phase);
/// Seconds of the phase's slowest rank over those of the repeat. The sum of shares exceeds 1 if phases overlap.
Summary phase_share(const Operation& operation, const std::string& phase);
std::uint64_t phase_bytes(const Operation& operation, const std::string& phase);
/// Names of all phases in the order in which they first appear.
std::vector<std::string> phases_of(const Operation& operation);

Summary rates_of(const std::vector<Rate>& rates);

}  // namespace cairn::bench
