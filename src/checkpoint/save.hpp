// Saving: describe, catalog, lay out, own, exchange, write, commit (src/checkpoint/README.md walks through it).
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

/// Keys of a manifest beside those that the format knows: how this save was written.
inline constexpr const char* kEngineKey = "engine";
inline constexpr const char* kHintsKey = "hints";

class Call;

/// One life of a root: between taking its lease and leaving it, or resuming again.
struct RootLife {
  root::Lease* lease = nullptr;                                  ///< on rank 0
  std::vector<format::Life> lineage;                             ///< of what was resumed, and that; empty: nothing was
  std::uint64_t saves = 0;                                       ///< so far, on rank 0
  std::string run_id = {};                                       ///< of the root, on rank 0, from the first save on
  using Steps = std::shared_ptr<const std::set<std::uint64_t>>;  ///< copied without memory; null: none
  Steps passed_over = {};  ///< which load_latest() found damaged on its way to what was resumed
  /// The last save so far, which may have become visible though it failed; on rank 0.
  std::optional<format::Life> saved = {};
};
/// The lives that whatever resumed from this checkpoint descends from. `step` is that of its name in the root: a manifest
/// may have none, or another one.
std::vector<format::Life> lineage_after(const format::Manifest& opened, std::uint64_t step);
/// Rank-local, on rank 0 with the lease held: the next save of this life, and what it may replace. `manifest` has its step.
void set_life(RootLife& life, root::CommitTarget& target, format::Manifest& manifest);

/// Where the bytes of a save are when they are gathered.
enum class Gathered {
  kFromSources,   ///< where the program has them
  kFromSnapshot,  ///< in host memory, whose places are given later (Planned::memory)
};

/// The memory boxes of a save as its rounds find them: until `first_late` those in `early`. Bypass runs count as before
/// all rounds.
struct RoundMemory {
  std::span<const plan::MemoryBox> early;
  std::span<const plan::MemoryBox> late = {};
  std::uint64_t first_late = std::numeric_limits<std::uint64_t>::max();

  [[nodiscard]] std::span<const plan::MemoryBox> of(std::uint64_t round) const {
    return round < first_late ? early : late;
  }
};

/// Goes along with a save that runs behind the program.
class SaveEscort {
 public:
  virtual ~SaveEscort() = default;
  /// Rank-local: returns when these bytes of the late memory are there. Called before round 0, for direct runs only, which
  /// are late. Must throw nothing.
  virtual void wait_for(std::span<const std::byte> bytes) = 0;
  /// Collective: before each round (and all that comes before round 0), and after the last. `bytes`: moved by this rank since the last time. What it
  /// throws on all ranks alike ends the save, which leaves nothing.
  virtual void before_round(std::uint64_t round, std::uint64_t bytes) = 0;
  /// Collective: all bytes are on storage, and the commit begins. Likewise.
  virtual void before_commit() = 0;
};

/// Keeps the plan of the last save; an unchanged description (agreed by one reduction) uses it again.
class Saver {
 public:
  /// How its saves go beside others that use the machine.
  struct Manners {
    std::uint64_t largest_message_bytes = io::ExchangeOptions().largest_message_bytes;
    bool has_rounds_only = false;   ///< nothing bypasses them: SaveEscort sees all bytes
    bool writes_snapshots = false;  ///< what is gathered kFromSnapshot lies as memory_places() says
  };
  /// `communicator` and `store`, which has the windows, must outlive the object.
  Saver(comm::Communicator& communicator, Options options, io::WindowStore& store, Manners manners);
  Saver(comm::Communicator& communicator, Options options, io::WindowStore& store)
      : Saver(communicator, std::move(options), store, Manners()) {}
  ~Saver();

  /// Collective. Writes a directory beside `directory` and commits it under that name; `step` is recorded. With `root`
  /// the parent is a root: its lease is taken, and its latest file replaced afterwards.
  Report save(const std::filesystem::path& directory, std::uint64_t step, std::span<const Source> state,
              const Extras& extras, RootLife* root = nullptr);

  // The same in two parts, for who has something to do between them. All of `given` may change after the first one but
  // the bytes that the memory boxes name.

  /// What the state is saved as.
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
  /// Collective. `beside` is where the checkpoint will be. With kFromSnapshot boxes in device memory are planned as if they
  /// were in host memory.
  Planned plan(const std::filesystem::path& beside, std::span<const Source> given, std::span<const std::byte> blob,
               Gathered gathered, Call& call);
  /// Collective, after plan() of `given`, while the boxes of `planned` name the bytes of the state: compares replicas
  /// (Options::checks). Adds a warning to the report, or throws comm::AgreedError(kState).
  void check_replicas(Planned& planned, std::span<const Source> given, std::uint64_t step, Call& call);
  /// Collective, before write() where there is a root: the lease, and whose root it is.
  void hold(const RootLife& root) const;
  /// Collective, with the root held where there is one.
  Report write(Planned& planned, const Place& place, const RoundMemory& memory, Call& call,
               SaveEscort* escort = nullptr);

  /// Rank-local, after plan(): rounds of the state's files, and what they read of the memory boxes in `first_round` and
  /// later; from round 0 on bypass runs are among it.
  [[nodiscard]] std::uint64_t rounds() const;
  [[nodiscard]] std::vector<plan::MemorySpan> memory_from(std::uint64_t first_round) const;
  /// Of memory boxes with direct runs: where these want them. Empty: there are none on any rank.
  [[nodiscard]] std::vector<std::optional<io::BoxInFile>> memory_places() const;
  /// On all ranks alike, after plan(). They are written as the snapshot has them.
  [[nodiscard]] bool has_direct_runs() const { return plan_ && plan_->bypass_way == io::BypassWay::kDirect; }
  /// Rank-local, on all ranks alike: plans from now on have no bypass runs.
  void use_rounds_only();
  /// Collective, the first time.
  const EngineChoice& choose_engine_for(const std::filesystem::path& directory);
  /// Moments are coded, or weights left out: what is saved is another state than the one given.
  [[nodiscard]] bool is_coding() const { return coder_ != nullptr; }

  /// Rank-local, on all ranks alike, while no save is under way: what the next save is compared with (Checks::stale) instead of the
  /// last one.
  void compare_with(StepBefore before) { before_ = std::move(before); }
  [[nodiscard]] StepBefore take_before() { return std::exchange(before_, {}); }

  /// Rank-local: gives the plan back, with all that it holds. The next save makes another one.
  void forget_plan();

 private:
  struct Made;
  /// Collective. Puts what it finds out about the state into the report.
  StateToSave plan_state(std::span<const Source> given, Gathered gathered, Call& call, Report& report);
  /// Rank-local. Of options without effect: true of every save, said with the first.
  void say_once(std::vector<std::string> warnings, Report& report);
  [[nodiscard]] std::optional<io::BypassWay> bypass_way(Gathered gathered) const;
  /// Collective, after plan_state().
  void plan_blob(std::span<const Source> given, std::span<const std::byte> blob, StateToSave& state);
  /// Collective, with a plan that has been made before. False where it does not go with the buffers that are kept now.
  bool renew_buffers(SavePlan& plan);
  /// Collective.
  Made describe_checkpoint(const Place& place) const;
  /// How the files of a plan are written.
  struct Writing {
    const std::filesystem::path& partial;
    SaveEscort* escort = nullptr;
    NonFiniteCounter* counter = nullptr;
  };
  /// Collective. The files of a plan from the memory of all ranks, synced and closed; gives their checksums.
  format::BlockTable write_files(SavePlan& plan, const RoundMemory& memory, const Writing& how, Call& call);
  /// Collective. As write_files(), and says in the report what was counted; throws comm::AgreedError(kState) where
  /// Checks::non_finite says so.
  format::BlockTable write_state(const RoundMemory& memory, Writing how, Call& call, Report& report);
  /// Collective. Says in the report how much has changed since the step before; throws comm::AgreedError(kState) where Checks::stale
  /// says so.
  void check_stale(const format::BlockTable& blocks, std::uint64_t step, Report& report) const;
  /// Rank-local. What is committed beside the data of the plan; rank 0 has the files to carry along, and what is to be said
  /// of them.
  root::CommitContent content_of(std::uint64_t step, const Extras& extras, std::vector<std::string>& warnings) const;
  void check_content(const root::CommitContent& content) const;
  /// Rank-local, with the root held: whose save it is, and what the first one of a life means for the root.
  void describe_life(RootLife& life, std::uint64_t step, Made& made) const;
  /// Rank-local.
  void describe_saved(const std::filesystem::path& directory, const RootLife* root, Report& report) const;

  comm::Communicator& communicator_;
  Options options_;
  io::WindowStore& store_;
  Manners manners_;
  root::RunRequest run_;
  std::unique_ptr<SavePlan> plan_;
  std::unique_ptr<SavePlan> blob_plan_;  ///< null where the last save had no blobs
  std::unique_ptr<codes::StateCoder> coder_;
  std::optional<EngineChoice> choice_;                ///< of the first save
  StepBefore before_;                                 ///< that was saved last, or loaded since
  std::unique_ptr<io::DeviceCopies> replica_copies_;  ///< where the plan has none
  std::uint64_t comparisons_ = 0;                     ///< of replicas, so far: the same on all ranks
  std::set<std::string> said_;
};

}  // namespace cairn::checkpoint
