// Saving: describe, catalog, lay out, assign, exchange, write, commit (walk: src/checkpoint/README.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/file_writer.hpp"
#include "checkpoint/non_finite.hpp"
#include "checkpoint/save_plan.hpp"
#include "checkpoint/step_before.hpp"
#include "codes/state_coder.hpp"
#include "comm/communicator.hpp"
#include "format/blocks.hpp"
#include "format/manifest.hpp"
#include "io/bypass_runs.hpp"
#include "io/device_copies.hpp"
#include "io/exchange.hpp"
#include "io/window_pool.hpp"
#include "plan/pieces.hpp"
#include "planning/describe.hpp"
#include "root/commit.hpp"
#include "root/run_name.hpp"

namespace cairn::checkpoint {

/// Further keys of a manifest: how this save was written.
inline constexpr const char* kEngineKey = "engine";
inline constexpr const char* kHintsKey = "hints";

class Call;

/// A saver's epoch in a root: from taking the lease, or resuming, until the lease is released or another resumption.
struct RootLife {
  root::Lease* lease = nullptr;                                  ///< on rank 0
  std::vector<format::Life> lineage;                             ///< with the resumed checkpoint; empty: none resumed
  std::uint64_t saves = 0;                                       ///< so far, on rank 0
  std::string run_id = {};                                       ///< of the root, on rank 0, from the first save on
  using Steps = std::shared_ptr<const std::set<std::uint64_t>>;  ///< copied without allocating; null: none
  Steps passed_over = {};  ///< damaged steps that the resuming load_latest() skipped
  /// The last save so far, which may have become visible though it failed; on rank 0.
  std::optional<format::Life> saved = {};
};
/// The lineage of a saver that resumes from this checkpoint. `step`: of its name in the root;
/// the manifest may have none or another one.
std::vector<format::Life> lineage_after(const format::Manifest& opened, std::uint64_t step);
/// Rank-local, on rank 0 with the lease held: numbers the next save of this epoch, whose step `manifest` has,
/// and says what it may replace.
void set_life(RootLife& life, root::CommitTarget& target, format::Manifest& manifest);

/// Where the bytes of a save are gathered from.
enum class Gathered {
  kFromSources,   ///< the program's memory
  kFromSnapshot,  ///< host memory, whose addresses are given later (RoundMemory)
};

/// The memory boxes of a save by round: before `first_late` those in `early`. Bypass runs count as before all rounds.
struct RoundMemory {
  std::span<const plan::MemoryBox> early;
  std::span<const plan::MemoryBox> late = {};
  std::uint64_t first_late = std::numeric_limits<std::uint64_t>::max();

  [[nodiscard]] std::span<const plan::MemoryBox> of(std::uint64_t round) const {
    return round < first_late ? early : late;
  }
};

/// Keeps the plan of the last save, and reuses it for an unchanged description (agreed by one reduction).
class Saver {
 public:
  /// Limits for saves that run behind a training.
  struct Manners {
    std::uint64_t largest_message_bytes = io::ExchangeOptions().largest_message_bytes;
    bool has_rounds_only = false;   ///< no bypass runs: SaveHooks sees all bytes
    bool writes_snapshots = false;  ///< snapshots (kFromSnapshot) have the layout of memory_places()
  };
  /// `communicator` and `store`, which has the windows, must outlive the object.
  Saver(comm::Communicator& communicator, Options options, io::WindowStore& store, Manners manners);
  Saver(comm::Communicator& communicator, Options options, io::WindowStore& store)
      : Saver(communicator, std::move(options), store, Manners()) {}
  ~Saver();

  /// Collective. Writes a partial directory next to `directory` and commits it under that name; `step` is recorded.
  /// With `root` the parent is a root: its lease is taken first, and its latest file replaced at the end.
  Report save(const std::filesystem::path& directory, std::uint64_t step, std::span<const Source> state,
              const Extras& extras, RootLife* root = nullptr);

  // save() in steps, for callers that work in between. After plan(), `given` may change,
  // except the bytes that the memory boxes name.

  /// The state in the form that is saved.
  struct StateToSave {
    codes::CodedState coded;
    std::vector<plan::MemoryBox> memory;
    std::vector<plan::MemoryBox> blob;
  };
  struct Planned {
    StateToSave state;
    Report report;  ///< so far
  };
  struct Place {
    const std::filesystem::path& directory;
    std::uint64_t step = 0;
    const Extras& extras;
    RootLife* root = nullptr;
  };
  /// Collective. `beside`: the future path of the checkpoint.
  /// With kFromSnapshot, boxes in device memory are planned as boxes in host memory.
  Planned plan(const std::filesystem::path& beside, std::span<const Source> given, std::span<const std::byte> blob,
               Gathered gathered, Call& call);
  /// Collective, after plan() of `given`, while the boxes of `planned` name the bytes of the state: compares replicas
  /// (Options::checks). Adds a warning to the report, or throws comm::AgreedError(kState).
  void check_replicas(Planned& planned, std::span<const Source> given, std::uint64_t step, Call& call);
  /// Collective, before write() into a root: takes or renews the lease, and checks the owner of the root.
  void hold(const RootLife& root) const;
  /// Collective, with the root held if there is one.
  Report write(Planned& planned, const Place& place, const RoundMemory& memory, Call& call,
               SaveHooks* escort = nullptr);

  /// Rank-local, after plan(): the rounds of the state's files.
  [[nodiscard]] std::uint64_t rounds() const;
  /// Rank-local, after plan(): the span of each memory box that rounds from `first_round` on read;
  /// with round 0 also that of bypass runs.
  [[nodiscard]] std::vector<plan::MemorySpan> memory_from(std::uint64_t first_round) const;
  /// The place in its file of each memory box with direct runs. Empty: no rank has direct runs.
  [[nodiscard]] std::vector<std::optional<io::BoxInFile>> memory_places() const;
  /// After plan(), the same on all ranks: whether runs are written directly from the snapshot.
  [[nodiscard]] bool has_direct_runs() const { return plan_ && plan_->bypass_way == io::BypassWay::kDirect; }
  /// Rank-local, on all ranks: plans from now on have no bypass runs.
  void use_rounds_only();
  /// Collective, the first time.
  const EngineChoice& choose_engine_for(const std::filesystem::path& directory);
  /// Moments are coded, or weights left out: the saved state differs from the given one.
  [[nodiscard]] bool is_coding() const { return coder_ != nullptr; }

  /// Rank-local, on all ranks, while no save is running: the next save is compared with this step,
  /// instead of the last save (Checks::stale).
  void compare_with(StepBefore before) { before_ = std::move(before); }
  [[nodiscard]] StepBefore take_before() { return std::exchange(before_, {}); }

  /// Rank-local: frees the plan and everything that it holds. The next save makes another one.
  void forget_plan();

 private:
  struct Made;
  /// Collective. Adds its findings about the state to the report.
  StateToSave plan_state(std::span<const Source> given, Gathered gathered, Call& call, Report& report);
  /// Rank-local. Adds each warning to one report only: options without effect concern every save.
  void say_once(std::vector<std::string> warnings, Report& report);
  [[nodiscard]] std::optional<io::BypassWay> bypass_way(Gathered gathered) const;
  /// Collective, after plan_state().
  void plan_blob(std::span<const Source> given, std::span<const std::byte> blob, StateToSave& state);
  /// Collective, with an older plan. False when the plan does not fit the current buffers.
  bool renew_buffers(SavePlan& plan);
  /// Collective.
  Made describe_checkpoint(const Place& place) const;
  struct Writing {
    const std::filesystem::path& partial;
    SaveHooks* escort = nullptr;
    NonFiniteCounter* counter = nullptr;
  };
  /// Collective. Writes, syncs and closes the files of a plan; returns their checksums.
  format::BlockTable write_files(SavePlan& plan, const RoundMemory& memory, const Writing& how, Call& call);
  /// Collective. As write_files(), and adds the counts of non-finite values to the report; throws
  /// comm::AgreedError(kState) if Checks::non_finite says so.
  format::BlockTable write_state(const RoundMemory& memory, Writing how, Call& call, Report& report);
  /// Collective. Reports the changes since the step before; throws comm::AgreedError(kState) if Checks::stale says so.
  void check_stale(const format::BlockTable& blocks, std::uint64_t step, Report& report) const;
  /// Rank-local. The content of the commit apart from the data files; rank 0 has the carried files and their warnings.
  root::CommitContent content_of(std::uint64_t step, const Extras& extras, std::vector<std::string>& warnings) const;
  void check_content(const root::CommitContent& content) const;
  /// Rank-local, with the root held: run and epoch of the save; a warning if the first save of an epoch abandons steps.
  void describe_life(RootLife& life, std::uint64_t step, Made& made) const;
  /// Rank-local.
  void describe_saved(const std::filesystem::path& directory, const RootLife* root, Report& report) const;

  comm::Communicator& communicator_;
  Options options_;
  io::WindowStore& store_;
  Manners manners_;
  root::RunRequest run_;
  std::unique_ptr<SavePlan> plan_;
  std::unique_ptr<SavePlan> blob_plan_;  ///< null if the last save had no blobs
  std::unique_ptr<codes::StateCoder> coder_;
  std::optional<EngineChoice> choice_;                ///< of the first save
  StepBefore before_;                                 ///< saved last, or loaded since
  std::unique_ptr<io::DeviceCopies> replica_copies_;  ///< if the plan has none
  std::uint64_t comparisons_ = 0;                     ///< of replicas, so far: the same on all ranks
  std::set<std::string> said_;
};

}  // namespace cairn::checkpoint
