// The save: describe, catalog, lay out, assign, exchange, write, commit (overview: src/README.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/content_digests.hpp"
#include "checkpoint/file_writer.hpp"
#include "checkpoint/reuse.hpp"
#include "checkpoint/save_content.hpp"
#include "checkpoint/save_plan.hpp"
#include "checkpoint/step_before.hpp"
#include "comm/communicator.hpp"
#include "format/blocks.hpp"
#include "format/manifest.hpp"
#include "format/save_rate.hpp"
#include "io/window_pool.hpp"
#include "plan/pieces.hpp"
#include "root/commit.hpp"
#include "root/load_mark.hpp"
#include "root/run_name.hpp"

namespace cairn::checkpoint {

/// The saves of a saver in a root until the saver resumes: one epoch, or more if the lease ran out.
struct RootLife {
  root::Lease* lease = nullptr;                                  ///< on rank 0
  std::vector<format::Life> lineage;                             ///< ends with the checkpoint from which the epoch
                                                                 ///< descends; empty: there is none
  std::uint64_t saves = 0;                                       ///< number of saves, also failed ones; on rank 0
  std::string run_id = {};                                       ///< name of the root's run, on rank 0, from the first
                                                                 ///< save on
  using Steps = std::shared_ptr<const std::set<std::uint64_t>>;  ///< copied without an allocation; null: no steps
  Steps passed_over = {};  ///< damaged steps that the resuming load_latest() skipped
  /// The last save, which may be visible although it failed; on rank 0.
  std::optional<format::Life> saved = {};
  // About the last save that succeeded, for the root's log (root_log.hpp):
  std::map<std::string, std::string> codecs = {};  ///< by section
  std::uint64_t spared_bytes = 0;                  ///< bytes that the codecs spared
};
/// The lineage of a saver that resumes from the checkpoint with manifest `opened`. `step`: the step in the checkpoint's
/// name in the root; the manifest may have no step or a different one.
std::vector<format::Life> lineage_after(const format::Manifest& opened, std::uint64_t step);
/// Rank-local, on rank 0 with the lease held: sets the epoch, number and lineage of the next save, whose step is in
/// `manifest`, and the content that the save may replace.
void set_life(RootLife& life, root::CommitTarget& target, format::Manifest& manifest);

/// The memory boxes of a save by round: `early`, or `late` from round `first_late` on. Bypass runs use of(0).
struct RoundMemory {
  std::span<const plan::MemoryBox> early;
  SaveHooks* hooks = nullptr;  ///< hooks of a save in the background, or null
  std::span<const plan::MemoryBox> late = {};
  std::uint64_t first_late = std::numeric_limits<std::uint64_t>::max();

  [[nodiscard]] std::span<const plan::MemoryBox> of(std::uint64_t round) const {
    return round < first_late ? early : late;
  }
};

/// The files of frozen tensors in a save with Options::reuse.
struct FrozenFiles {
  std::optional<ContentDigests> digests;  ///< empty: there are no such files
  Earlier earlier;
};

/// Writes planned saves, and compares each with the step that was saved or loaded last.
class SaveWriter {
 public:
  /// `communicator`, `options` and `store`, which has the windows, must outlive the object.
  SaveWriter(comm::Communicator& communicator, const Options& options, io::WindowStore& store)
      : communicator_(communicator), options_(options), store_(store), run_{options.run_id, options.allow_other_run} {}

  /// Collective, before write() into a root: takes or renews the lease, and checks which run owns the root.
  void hold(const RootLife& root) const { root::hold_root(communicator_, root.lease, &run_); }
  /// Collective. If the request has a root, hold() must have been called.
  Report write(PlannedSave& planned, const SaveRequest& request, const RoundMemory& memory, Call& call);

  /// Rank-local, on all ranks, while no save is running: the next save is compared with this step instead of the last
  /// save (Checks::stale).
  void compare_with(StepBefore before) { before_ = std::move(before); }
  [[nodiscard]] StepBefore take_before() { return std::exchange(before_, {}); }

 private:
  /// Collective: prepares the digests of the files of frozen tensors, and looks for files that they may equal.
  FrozenFiles find_frozen(const SavePlan& plan, const SaveRequest& request, const RoundMemory& memory, Call& call,
                          Report& report) const;
  /// Where write_files() writes to.
  struct Destination {
    const std::filesystem::path& partial;
    FrozenFiles* frozen = nullptr;  ///< null: there are none
    Report* report = nullptr;       ///< with `frozen`
  };
  /// Collective. Writes, syncs and closes the files of a plan; returns their checksums.
  format::BlockTable write_files(SavePlan& plan, const Destination& to, const RoundMemory& memory, Call& call) const;
  /// Collective. As write_files(), and adds the counts of non-finite values to the report; throws
  /// comm::AgreedError(kState) if Checks::non_finite requires it.
  format::BlockTable write_state(SavePlan& plan, const Destination& to, const RoundMemory& memory, Call& call) const;
  /// Collective. Reports the changes since the previous step; throws comm::AgreedError(kState) if Checks::stale
  /// requires it.
  void check_stale(const SavePlan& plan, const format::BlockTable& blocks, std::uint64_t step, Report& report) const;
  /// Collective: refuses a save that cannot succeed (Options::preflight).
  void check_storage(const PlannedSave& planned, const SaveRequest& request, const root::CommitContent& content,
                     Report& report);
  /// Rank-local, on rank 0, with the root held: removes remains of failed saves and, with Retention::prune_before,
  /// checkpoints that no rule keeps.
  void make_room(root::Lease& lease, bool prunes, Report& report);
  /// Rank-local, on rank 0: sets the time that the save should take.
  void expect(const PlannedSave& planned, const SaveRequest& request, Report& report);
  /// Rank-local, on rank 0, with the root held.
  void prune_by(const Retention& rules, root::Lease& lease, Report& report);
  /// Collective; rank 0 applies Options::retention. Never fails because of the file system.
  void prune_root(const RootLife& root, Call& call, Report& report);
  std::string describe_life(RootLife& life, root::CommitTarget& target, format::Manifest& manifest) const;

  comm::Communicator& communicator_;
  const Options& options_;
  io::WindowStore& store_;
  root::RunRequest run_;
  root::LoadWatch loads_;                   ///< on rank 0
  std::optional<format::SaveRates> rates_;  ///< on rank 0, from the first save into a root on
  StepBefore before_;                       ///< the step saved last, or loaded since then
};

/// A planner and a writer, for saves as a whole or step by step.
class Saver {
 public:
  /// `communicator` and `store`, which has the windows, must outlive the object.
  Saver(comm::Communicator& communicator, Options options, io::WindowStore& store, BackgroundLimits limits = {});
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  /// Collective. Writes a partial directory next to `directory`, then commits it as `directory`; `step` is recorded.
  /// With `root`, the parent is a root: its lease is taken or renewed first, its latest file replaced at the end.
  Report save(const std::filesystem::path& directory, std::uint64_t step, std::span<const Source> state,
              const Extras& extras, RootLife* root = nullptr);

 private:
  comm::Communicator& communicator_;
  const Options options_;

 public:
  SavePlanner planner;
  SaveWriter writer;
};

}  // namespace cairn::checkpoint
