// Rules and pins that keep checkpoints of a root (Options::retention, `cairn prune`), and the result of pruning.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

enum class Best { kMin, kMax };

/// The best checkpoints by a metric that was recorded with the save (Extras::metrics). Checkpoints without the metric
/// are not among them; of equal ones, those saved last are.
struct BestBy {
  std::string metric;      ///< not empty
  Best best = Best::kMin;  ///< the smallest values are the best, or the largest
  std::uint64_t keep = 1;  ///< number of checkpoints, above 0
};

/// Rules that keep checkpoints. A checkpoint goes only if no rule keeps it. Without any rule nothing goes. Rules count
/// whole checkpoints of the run only; damaged and void ones go first, wherever a rule is given. Checkpoints that hold a
/// part of a state (Options::save_only) are counted apart, those of the same tensors together; none takes the place
/// of a whole state in a rule.
///
/// Whatever the rules, these stay: the newest whole checkpoint, the newest one of each part, the base of a part that is
/// there, all that may be newer, the one that the latest file
/// names; pinned ones; what a load has open; directories of other programs, of other runs and of a newer Cairn, links,
/// and all that cannot be read at the moment. A limit of 0 is kUsage.
struct Retention {
  std::optional<std::uint64_t> keep_last = {};   ///< the checkpoints saved last
  std::optional<std::uint64_t> keep_every = {};  ///< steps that are multiples of this
  std::vector<std::uint64_t> keep_steps = {};    ///< these steps
  std::vector<BestBy> keep_best = {};
  /// The last one of every hour of the last 24 hours, and the last one of every day. Hours and days are those of UTC;
  /// the time of a checkpoint is that of its cairn.json, which copies should preserve (cp -a).
  bool keep_by_age = false;
  /// Saves only: if space, inodes or quota are too short for a save, apply the rules before it as well, as if the new
  /// checkpoint were already there (`keep_last` counts it). All that stays whatever the rules, such as the newest whole
  /// checkpoint, stays here too. Without rules, and without Options::preflight, kUsage.
  bool prune_before = false;

  /// Whether there is no rule.
  [[nodiscard]] bool empty() const {
    return !keep_last && !keep_every && keep_steps.empty() && keep_best.empty() && !keep_by_age;
  }
};

/// A checkpoint that stays, or goes, and the reason.
struct StepFate {
  std::uint64_t step = 0;
  std::filesystem::path directory;
  bool goes = false;
  std::string why;          ///< one line: the rules that keep it, or the reason to go
  std::uint64_t bytes = 0;  ///< size of the data files of a whole checkpoint
};

/// The result of pruning a root.
struct Pruning {
  std::vector<StepFate> steps;        ///< all checkpoints, in order of step
  std::uint64_t freed_bytes = 0;      ///< bytes of deleted files; files with another name (hard links) do not count
  std::vector<std::string> warnings;  ///< what should have gone and could not, and why
};

struct PruneOptions {
  bool dry_run = false;  ///< only say what would go: writes nothing, and needs no lease
  /// Time to wait for another saver of the root to end. Unset: as LeaseOptions::wait_seconds.
  std::optional<double> wait_seconds = {};
};

/// Rank-local: call it in one process. Removes the checkpoints of a root that no rule keeps, as the root's saver: takes
/// the lease of the root, and releases it at the end. Throws kUsage for a rule without sense, kNotFound if the root
/// does not exist, kState if the root has another saver (let that one prune: Options::retention), and kIo. A checkpoint
/// disappears whole or not at all: it is renamed first, so that a crash leaves either the checkpoint or remains that
/// the next saver deletes. If a load on another machine may have ended without a word, waits a minute to see.
Pruning prune(const std::filesystem::path& root, const Retention& retention, const PruneOptions& options = {});

/// Rank-local. Pins a checkpoint: no pruning removes it, until unpin(). Durable on return; the root may have a saver
/// meanwhile. A pin is a file of its own in the root's .cairn, and belongs to the step, whoever saves it. Pinning twice
/// changes nothing. Throws kNotFound (Missing::kStep) if the root has no checkpoint of this step, and kIo.
void pin(const std::filesystem::path& root, std::uint64_t step);
/// Rank-local. Throws kNotFound if the step is not pinned, and kIo.
void unpin(const std::filesystem::path& root, std::uint64_t step);

}  // namespace cairn
