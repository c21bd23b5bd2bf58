// The plan of a save: everything between the program's description of its state and the first byte written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/checkpoint.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/engine_choice.hpp"
#include "checkpoint/non_finite.hpp"
#include "codes/state_coder.hpp"
#include "comm/communicator.hpp"
#include "interop/form.hpp"
#include "io/bypass_runs.hpp"
#include "io/device_copies.hpp"
#include "io/exchange.hpp"
#include "io/window_pool.hpp"
#include "plan/catalog.hpp"
#include "plan/coverage.hpp"
#include "plan/extents.hpp"
#include "plan/file_layout.hpp"
#include "plan/pieces.hpp"
#include "plan/samples.hpp"
#include "planning/catalog_steps.hpp"

namespace cairn::checkpoint {

struct SavePlan {
  EngineChoice* engine = nullptr;  ///< the planner's choice
  base::Bytes description;         ///< description of the state, to compare with the next save
  plan::FileLayout layout;  ///< has the headers that this rank writes and, on rank 0, the indexes; without tensors
  std::optional<io::BypassWay> bypass_way;  ///< empty: no bypass runs
  io::BypassRuns bypass;                    ///< runs of this rank, in no extent
  std::unique_ptr<plan::ExtentMap> extents;
  std::uint64_t buffer_bytes = 0;            ///< size of this rank's largest window
  std::weak_ptr<io::WindowPool> buffers;     ///< windows of `exchange`; the store may have larger ones by now
  std::unique_ptr<io::DeviceCopies> device;  ///< null: this rank plans no boxes in device memory
  std::optional<io::Exchange> exchange;      ///< refers to buffers and device
  std::uint64_t tensors = 0;
  std::uint64_t tensor_bytes = 0;                        ///< bytes of all tensors
  std::vector<plan::Replica> replicas;                   ///< replicas of this rank's boxes
  bool has_replicas = false;                             ///< whether any rank has replicas, including moments that are
                                                         ///< coded
  std::optional<plan::SampleRule> sample_rule;           ///< rule for samples of the replicas, from the first
                                                         ///< comparison on
  std::vector<std::string> changing_sections;            ///< sections with bytes that Options::frozen does not select
  std::vector<bool> frozen_files;                        ///< by file: whether it has only tensors that
                                                         ///< Options::frozen selects; all false without Options::reuse
  std::vector<std::string> idle;                         ///< warnings about Options::frozen selections without a tensor
  std::vector<FloatsInFile> floats;                      ///< tensors of floats in files to which this rank writes;
                                                         ///< empty without Checks::non_finite
  std::optional<NonFiniteCounter> counter;               ///< counter of the running save
  plan::PackedCatalog catalog;                           ///< on rank 0, for the names of all ranks' `floats`
  std::unique_ptr<const interop::CheckedState> checked;  ///< the state as checked by the form that is written; null
                                                         ///< in the plan of the ranks' blobs

  // Rank-local.

  /// For each memory box, the span that is read in rounds from `first_round` on; from round 0 also by bypass runs.
  [[nodiscard]] std::vector<plan::MemorySpan> memory_from(std::uint64_t first_round) const;
  /// The same on all ranks: whether runs are written directly from the snapshot.
  [[nodiscard]] bool has_direct_runs() const { return bypass_way == io::BypassWay::kDirect; }
  /// By memory box: the place in its file of a box with direct runs, or nothing. The list ends with the last such box.
  [[nodiscard]] std::vector<std::optional<io::BoxInFile>> memory_places() const;
};

/// A state as it will be saved. The pointers are valid until the planner plans again or forgets its plan.
struct PlannedSave {
  codes::CodedState coded;
  std::vector<plan::MemoryBox> memory;
  std::vector<plan::MemoryBox> blob;
  Report report;  ///< the report so far
  SavePlan* files = nullptr;
  SavePlan* blob_files = nullptr;            ///< null: no rank has a blob
  const codes::StateCoder* coder = nullptr;  ///< null: the state is saved as it is given
};

/// The memory from which a save takes its bytes.
enum class GatherFrom {
  kSources,   ///< the program's memory
  kSnapshot,  ///< snapshots in host memory, at addresses that are given later (RoundMemory)
};

/// Limits for saves that run during training.
struct BackgroundLimits {
  std::uint64_t largest_message_bytes = io::ExchangeOptions().largest_message_bytes;
  bool has_rounds_only = false;   ///< no bypass runs: SaveHooks see all bytes
  bool writes_snapshots = false;  ///< snapshots (kSnapshot) have the layout of SavePlan::memory_places()
};

/// Keeps the plan of the last save, and reuses it if the state's description is unchanged on all ranks (a reduction).
class SavePlanner {
 public:
  /// `communicator`, `options` and `store`, which has the windows, must outlive the object.
  SavePlanner(comm::Communicator& communicator, const Options& options, io::WindowStore& store,
              BackgroundLimits limits);

  /// Collective: catalog, file layout, extents, coverage check and transfers. `storage`: the future path of the
  /// checkpoint, or its root. With kSnapshot, boxes in device memory are planned as host memory. Afterwards `given` may
  /// change, except for the bytes to which the memory boxes point. Throws kState for holes, overlaps and
  /// contradictions, kUsage for impossible options and for a state that Options::files.form refuses.
  PlannedSave plan(const std::filesystem::path& storage, std::span<const Source> given, std::span<const std::byte> blob,
                   GatherFrom from, Call& call);
  /// Collective, after plan() of `given`, while the boxes of `planned` point to the bytes of the state: compares
  /// replicas (Options::checks). Adds a warning to the report, or throws comm::AgreedError(kState).
  void check_replicas(PlannedSave& planned, std::span<const Source> given, std::uint64_t step, Call& call);

  /// Collective the first time; later returns the same choice.
  const EngineChoice& choose_engine_for(const std::filesystem::path& directory);
  /// Whether the options code moments or leave out weights, so that the saved state can differ from the given state.
  [[nodiscard]] bool is_coding() const { return coder_ != nullptr; }
  /// Rank-local, on all ranks: plans from now on have no bypass runs.
  void use_rounds_only();
  /// Rank-local: frees all plans and everything that they hold. The next save makes new plans.
  void forget_plan();

 private:
  struct Files;
  void plan_state(PlannedSave& planned, std::span<const Source> given, GatherFrom from, Call& call);
  void plan_blob(PlannedSave& planned, std::span<const Source> given, std::span<const std::byte> blob);
  Files plan_files(const planning::DescribedState& state, std::span<const plan::MemoryBox> boxes);
  Files plan_blob_files(std::span<const std::uint64_t> sizes, std::span<const plan::MemoryBox> boxes);
  std::unique_ptr<SavePlan> plan_transfers(Files known, std::span<const plan::MemoryBox> boxes, GatherFrom from,
                                           const io::WindowPool* others);
  [[nodiscard]] std::optional<io::BypassWay> choose_bypass(GatherFrom from) const;
  bool renew_buffers(SavePlan& plan);
  void say_once(std::vector<std::string> warnings, Report& report);

  comm::Communicator& communicator_;
  const Options& options_;
  io::WindowStore& store_;
  BackgroundLimits limits_;
  std::unique_ptr<SavePlan> plan_;
  std::unique_ptr<SavePlan> blob_plan_;  ///< null if the last save had no blobs
  std::unique_ptr<codes::StateCoder> coder_;
  std::optional<EngineChoice> choice_;                ///< made for the first plan
  std::unique_ptr<io::DeviceCopies> replica_copies_;  ///< used if the plan has no device copies
  std::uint64_t comparisons_ = 0;                     ///< number of comparisons of replicas so far; the same on all
                                                      ///< ranks
  std::set<std::string> said_;                        ///< warnings reported so far
};

}  // namespace cairn::checkpoint
