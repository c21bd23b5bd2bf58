// The state of a checkpoint under its name, and whether a save may replace it: one rule for every save, conversion and
// clean-up (FORMAT.md, "What may be replaced").
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cairn/error.hpp"
#include "format/manifest.hpp"

namespace cairn::root {

/// Only content in the first two conditions is proven to be Cairn's.
enum class Condition {
  kWhole,       ///< the manifest can be read, every file that it names has its size, and cairn.blocks is there
  kIncomplete,  ///< the manifest can be read, but a file is missing or has the wrong size
  kDamaged,     ///< cairn.json is not a manifest, or is missing next to a cairn.blocks
  kNewer,       ///< the manifest claims a version or kind that only a newer Cairn reads
  kForeign,     ///< neither file exists, or the path is not a directory
  kUnreadable,  ///< the system reported an error, or a link dangles; may be any of the other conditions
};

/// (epoch, save counter): orders the checkpoints of a root. Both are 0 if the manifest has neither.
struct Generation {
  std::uint64_t epoch = 0;
  std::uint64_t counter = 0;
  auto operator<=>(const Generation&) const = default;
};

/// The result of a look at a name.
struct Standing {
  Condition condition = Condition::kForeign;
  std::optional<Error> error = {};  ///< reason why the checkpoint is not whole
  bool has_manifest = false;        ///< the manifest was read: true if whole or incomplete, sometimes if unreadable
  Generation generation = {};       ///< set only with has_manifest, like all members below
  std::vector<format::Life> lineage = {};
  std::string run_id = {};
  std::map<std::string, double> metrics = {};
  std::optional<format::Part> part = {};  ///< of a checkpoint that holds only some tensors of a state
  std::uint64_t bytes = 0;                ///< size of the data files of a whole checkpoint
  std::uint64_t files = 0;
};

/// Rank-local: reads the manifest and the size of every file that it names. Throws only if memory or descriptors run
/// out, which says nothing about the checkpoint.
Standing look_at(const std::filesystem::path& directory);

/// True for a newer Cairn's checkpoint and for temporary errors: then an older checkpoint must not take its place.
/// Other errors mean damage.
bool may_be_whole(const Standing& standing);

/// Rank-local. Throws Error(kIntegrity) if cairn.blocks exists without cairn.json, so that bytes cannot be checked.
void refuse_lost_manifest(const std::filesystem::path& directory);

/// Rank-local. The generation of a whole checkpoint; nothing for any other content.
std::optional<Generation> generation_of(const std::filesystem::path& directory);

/// The epoch of a checkpoint or saver, and the epochs from which it descends (rules: FORMAT.md).
struct Descent {
  std::uint64_t epoch = 0;
  std::vector<format::Life> lineage;  ///< empty: nothing was resumed, and nothing is void to it
  std::string run_id = {};            ///< empty: unknown
};
/// The reason why a checkpoint of that step and generation is void to `descent`; nothing if it is not. The descent of
/// the oldest epoch of the lineage is unknown, so no older epoch is void, unless the lineage names it. Epoch 0 marks
/// checkpoints that no saver of the root made; it does not count as the oldest.
std::optional<std::string> why_void(const Descent& descent, std::uint64_t step, const Generation& generation);

/// The content that a save may replace.
struct Replacing {
  bool overwrite = false;          ///< replace whole, incomplete and damaged checkpoints
  bool overwrite_foreign = false;  ///< also replace foreign content, and checkpoints of a newer Cairn
  /// Set by a saver that saves `step` into its root: incomplete steps, and steps that its own run left void,
  /// may be replaced without `overwrite`.
  std::optional<Descent> descent = {};
  std::uint64_t step = 0;
  bool is_part = false;  ///< the save holds a part of a state; by `descent` only parts replace parts
  /// The load from which this epoch resumed passed over the step, so a damaged step must not block saves for ever.
  bool is_passed_over = false;
};

/// The fate of the content under the name.
enum class Fate {
  kReplaced,
  kAbandoned,  ///< replaced: whole, and void to the saving run
  kSetAside,   ///< damaged: renamed
};

/// Rank-local: throws kUsage for content that must stay, and kIo, whatever the options, for an error of the system.
Fate check_replaceable(const std::filesystem::path& directory, const Replacing& may);

/// Rank-local. As check_replaceable(), for a staging file: whole if `open` succeeds, otherwise foreign, of a newer
/// Cairn or unreadable. Never lets a directory be replaced.
void check_replaceable_stage(const std::filesystem::path& file, const Replacing& may,
                             const std::function<void(const std::filesystem::path&)>& open);

}  // namespace cairn::root
