// Saving: describe, catalog, lay out, own, exchange, write, commit (src/checkpoint/README.md walks through it).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/engine_choice.hpp"
#include "comm/communicator.hpp"
#include "format/blocks.hpp"
#include "format/manifest.hpp"
#include "io/bypass_runs.hpp"
#include "io/device_copies.hpp"
#include "io/exchange.hpp"
#include "io/window_pool.hpp"
#include "plan/extents.hpp"
#include "plan/file_layout.hpp"
#include "plan/pieces.hpp"
#include "planning/catalog_steps.hpp"
#include "planning/describe.hpp"

namespace cairn::checkpoint {

// The plan of a save: everything between the ranks' descriptions and the first byte. Kept for the next save.

struct SavePlan {
  base::Bytes description;  ///< what it was made of, for the comparison with the next save; filled by the caller
  plan::FileLayout layout;  ///< with the headers that this rank writes, and on rank 0 with the indexes; no tensors
  io::BypassRuns bypass;    ///< of this rank; in no extent
  std::unique_ptr<plan::ExtentMap> extents;
  std::uint64_t buffer_bytes = 0;            ///< of a window of this rank
  std::weak_ptr<io::WindowPool> buffers;     ///< those that `exchange` uses: the store may need larger ones meanwhile
  std::unique_ptr<io::DeviceCopies> device;  ///< for boxes in device memory; null: this rank has none
  std::optional<io::Exchange> exchange;      ///< refers to buffers and device
  std::uint64_t tensors = 0;
  std::uint64_t tensor_bytes = 0;  ///< of all tensors
};

struct SavePlanOptions {
  const Options& options;
  const EngineChoice& choice;
  io::WindowStore& store;
  const io::WindowPool* beside = nullptr;  ///< of a plan that is kept meanwhile: to do with its windows where they can
};

/// Collective. Catalog, file layout, extents, coverage check and transfers. Throws kState for holes, overlaps and
/// contradictions, kUsage for options that cannot work.
std::unique_ptr<SavePlan> make_save_plan(comm::Communicator& communicator, const DescribedState& state,
                                         std::span<const plan::MemoryBox> boxes, const SavePlanOptions& how);

/// Collective. Of the ranks' blobs, `sizes[r]` being the size of rank r's: the plan that make_save_plan() makes of them as
/// tensors, without asking who has what. `boxes`: this rank's, whose MemoryBox::tensor is the rank; or none.
std::unique_ptr<SavePlan> make_blob_plan(comm::Communicator& communicator, std::span<const std::uint64_t> sizes,
                                         std::span<const plan::MemoryBox> boxes, const SavePlanOptions& how);

/// Keys of a manifest beside those that the format knows: how this save was written.
inline constexpr const char* kEngineKey = "engine";
inline constexpr const char* kHintsKey = "hints";

struct CommitContent;
class Lease;
struct SavePlan;
class Call;
class StateCoder;

/// One life of a root: between taking its lease and leaving it, or resuming again.
struct RootLife {
  Lease* lease = nullptr;             ///< on rank 0
  std::vector<format::Life> lineage;  ///< of what was resumed, and that; empty: nothing was
  std::uint64_t saves = 0;            ///< so far, on rank 0
};

/// Keeps the plan of the last save; an unchanged description (agreed by one reduction) uses it again.
class Saver {
 public:
  /// `communicator` and `store`, which has the windows, must outlive the object.
  Saver(comm::Communicator& communicator, Options options, io::WindowStore& store);
  ~Saver();

  /// Collective. Writes a directory beside `directory` and commits it under that name; `step` is recorded. With `root`
  /// the parent is a root: its lease is taken, and its latest file replaced afterwards.
  Report save(const std::filesystem::path& directory, std::uint64_t step, std::span<const Source> state,
              const Extras& extras, RootLife* root = nullptr);

  /// Rank-local: gives the plan back, with all that it holds. The next save makes another one.
  void forget_plan();

 private:
  struct StateToSave;
  struct Made;
  /// Collective. Puts what it finds out about the state into the report.
  StateToSave plan_save(std::span<const Source> given, Call& call, Report& report);
  /// Collective, after plan_save().
  void plan_blob(std::span<const Source> given, std::span<const std::byte> blob, StateToSave& state);
  /// Collective, with a plan that has been made before. False where it does not go with the buffers that are kept now.
  bool renew_buffers(SavePlan& plan);
  /// Collective.
  Made describe_checkpoint(const std::filesystem::path& directory, std::uint64_t step, const Extras& extras,
                           RootLife* root) const;
  /// Collective. The files of a plan from the memory of all ranks, synced and closed; gives their checksums.
  format::BlockTable write_files(SavePlan& plan, std::span<const plan::MemoryBox> memory,
                                 const std::filesystem::path& partial, Call& call);
  /// Rank-local. What is committed beside the data of the plan; rank 0 has the files to carry along.
  CommitContent content_of(std::uint64_t step, const Extras& extras) const;
  /// Rank-local.
  void describe_saved(const std::filesystem::path& directory, const RootLife* root, Report& report) const;

  comm::Communicator& communicator_;
  Options options_;
  io::WindowStore& store_;
  std::unique_ptr<SavePlan> plan_;
  std::unique_ptr<SavePlan> blob_plan_;  ///< null where the last save had no blobs
  std::unique_ptr<StateCoder> coder_;
  std::optional<EngineChoice> choice_;  ///< of the first save
};

}  // namespace cairn::checkpoint
