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
#include "format/manifest.hpp"
#include "io/window_pool.hpp"
#include "plan/pieces.hpp"

namespace cairn::checkpoint {

/// Keys of a manifest beside those that the format knows: how this save was written.
inline constexpr const char* kEngineKey = "engine";
inline constexpr const char* kHintsKey = "hints";

struct CommitContent;
class Lease;
struct SavePlan;
class Call;
class StateCoder;

/// One life of a root: between taking its lease and leaving it, or resuming anew.
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

  /// Collective. Writes a directory beside `directory` and commits it under that name; `step` is recorded. With `root` the
  /// parent is a root: its lease is taken, and its latest file replaced afterwards.
  Report save(const std::filesystem::path& directory, std::uint64_t step, std::span<const Source> state,
              const Extras& extras, RootLife* root = nullptr);

 private:
  struct StateToSave;
  struct Made;
  /// Collective. Puts what it finds out about the state into the report.
  StateToSave plan_save(std::span<const Source> given, std::span<const std::byte> blob, Call& call, Report& report);
  /// Collective.
  Made describe_checkpoint(const std::filesystem::path& directory, std::uint64_t step, const Extras& extras,
                           RootLife* root) const;
  /// Rank-local. What is committed beside the data of the plan; rank 0 has the files to carry along.
  CommitContent content_of(std::uint64_t step, const Extras& extras) const;
  /// Rank-local.
  void describe_saved(const std::filesystem::path& directory, const RootLife* root, Report& report) const;

  comm::Communicator& communicator_;
  Options options_;
  io::WindowStore& store_;
  std::unique_ptr<SavePlan> plan_;
  std::unique_ptr<StateCoder> coder_;
  std::optional<EngineChoice> choice_;  ///< of the first save
};

}  // namespace cairn::checkpoint
