// What stands under the name of a checkpoint, and whether a save may replace it: one rule for every save, conversion and
// clean-up (FORMAT.md, "What may be replaced").
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cairn/error.hpp"
#include "format/manifest.hpp"

namespace cairn::root {

/// Only the first two are proven to be Cairn's.
enum class Condition {
  kWhole,       ///< its manifest can be read, and every file that it names is there with its size, and cairn.blocks
  kIncomplete,  ///< its manifest can be read, and a file is missing or has another size
  kDamaged,     ///< its cairn.json holds no manifest, or is gone, and cairn.blocks is there
  kNewer,       ///< its manifest claims a version or kind that only a newer Cairn reads
  kForeign,     ///< there is neither of both files, or it is not a directory
  kUnreadable,  ///< the system reported an error, or it is a link to what is not there now: it may be any of the others
};

/// (epoch, save counter), by which two checkpoints of a root are compared; 0 in manifests that do not have them.
struct Generation {
  std::uint64_t epoch = 0;
  std::uint64_t counter = 0;
  auto operator<=>(const Generation&) const = default;
};

/// What is found under a name.
struct Standing {
  Condition condition = Condition::kForeign;
  std::optional<Error> error = {};  ///< why it is not whole; none of a whole one
  bool has_manifest = false;        ///< one that can be read: whole, incomplete, and some that are unreadable
  Generation generation = {};       ///< with has_manifest, like all below
  std::vector<format::Life> lineage = {};
  std::string run_id = {};
  std::uint64_t bytes = 0;  ///< of data files; of a whole one
  std::uint64_t files = 0;
};

/// Rank-local: reads the manifest and looks at the size of every file that it names. Throws only where memory or
/// descriptors run out, which says nothing of the checkpoint.
Standing look_at(const std::filesystem::path& directory);

/// Of something that cannot be read: it may be whole all the same, for a newer Cairn or later, and nothing older is taken
/// for it. An error that will not pass is damage.
bool may_be_whole(const Standing& standing);

/// Rank-local. Throws Error(kIntegrity) for a checkpoint that has lost its cairn.json, and so nothing to check its bytes by.
void refuse_lost_manifest(const std::filesystem::path& directory);

/// Rank-local. The generation of a whole checkpoint; nothing for anything else.
std::optional<Generation> generation_of(const std::filesystem::path& directory);

/// The lives that a checkpoint or a saver is of: its own, and those that it descends from. FORMAT.md has the rules.
struct Descent {
  std::uint64_t epoch = 0;
  std::vector<format::Life> lineage;  ///< empty: nothing was resumed, and nothing is void to it
  std::string run_id = {};            ///< empty: not known
};
/// Why a checkpoint of that step and generation is void to what descends so; nothing when it is not. What the oldest life
/// of the lineage descends from is not known, so that nothing older is void to it unless the lineage names its epoch.
/// Epoch 0 is of checkpoints that no life of the root saved, and is older than none.
std::optional<std::string> why_void(const Descent& descent, std::uint64_t step, const Generation& generation);

/// What a save may take the name from.
struct Replacing {
  bool overwrite = false;          ///< all that is proven to be Cairn's, or has a damaged cairn.json
  bool overwrite_foreign = false;  ///< also what is not Cairn's, or is a newer Cairn's
  /// Of the life that saves `step` into its root: what its own run left void, or is incomplete, may go without
  /// `overwrite`.
  std::optional<Descent> descent = {};
  std::uint64_t step = 0;
  /// By the load that this life goes on from: damaged, it must not be in the way for ever.
  bool is_passed_over = false;
};

/// What becomes of what has the name.
enum class Fate {
  kReplaced,
  kAbandoned,  ///< replaced: it is whole, and void to the run that saves
  kSetAside,   ///< it is damaged, and gets another name
};

/// Rank-local: throws for something of that name that must stay; kUsage, and kIo for what cannot be read just now,
/// which no option lets go.
Fate check_replaceable(const std::filesystem::path& directory, const Replacing& may);

/// Rank-local. The same of a staging file: it is whole where `open` opens it, and nothing is damaged. No option lets
/// a directory go.
void check_replaceable_stage(const std::filesystem::path& file, const Replacing& may,
                             const std::function<void(const std::filesystem::path&)>& open);

}  // namespace cairn::root
