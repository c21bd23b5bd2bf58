// The root directory of a run: checkpoint-<step> directories, partial ones, and the name of the latest checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/error.hpp"
#include "root/standing.hpp"

namespace cairn::root {

inline constexpr const char* kPartialSuffix = ".partial";

std::filesystem::path checkpoint_directory(const std::filesystem::path& root, std::uint64_t step);

/// Directories that a saver makes next to `directory`, with its nonce in the name: the directory that it writes, and
/// the directory that holds the old checkpoint, as replaced_directory(d, n) / d.filename(), until the new checkpoint
/// has its name.
std::filesystem::path partial_directory(const std::filesystem::path& directory, const std::string& nonce);
std::filesystem::path replaced_directory(const std::filesystem::path& directory, const std::string& nonce);
/// The file that holds the next content of the latest file.
std::filesystem::path latest_temporary(const std::filesystem::path& root, const std::string& nonce);

/// The name of a checkpoint in a root, or of something unfinished or replaced; parse_root_name() skips other names.
struct RootName {
  enum class Kind { kCheckpoint, kPartial, kReplaced, kTemporary };
  Kind kind = Kind::kCheckpoint;
  std::string text;
  std::uint64_t step = 0;  ///< not for kTemporary
  std::string nonce;       ///< empty for a checkpoint
};
std::optional<RootName> parse_root_name(std::string_view name);

/// Rank-local. The newest complete checkpoint that was moved aside from `directory` for a replacement, which is still
/// in progress or was interrupted; nothing if there is none.
std::optional<std::filesystem::path> replaced_checkpoint(const std::filesystem::path& directory);

/// Rank-local. Highest epoch in the readable manifests, also of incomplete checkpoints; 0 without any.
std::uint64_t highest_saved_epoch(const std::filesystem::path& root);

/// A step of a root, or an unfinished directory in it.
struct RootEntry : Standing {
  std::uint64_t step = 0;
  std::filesystem::path directory;  ///< directory to read from; during a replacement perhaps the old checkpoint's
  bool partial = false;             ///< being written or left by a crash; not examined
  bool is_void = false;             ///< abandoned (see why_void()), or saved by another run
  bool is_of_other_run = false;     ///< void because another run saved it
  bool is_replaced = false;         ///< a .replaced directory of this step exists
  std::string problem;              ///< the reason why the entry is not complete, or is void; empty otherwise

  [[nodiscard]] bool is_complete() const { return !partial && condition == Condition::kWhole; }
};

/// Rank-local. Entries by step, partial ones last; throws if the root cannot be read. An entry is void if why_void()
/// gives a reason for the head's descent, or if it belongs to another run from which the head does not descend.
std::vector<RootEntry> list_root(const std::filesystem::path& root);

/// One line about the first save of an epoch, which saves the whole state of `step`: the steps that it abandons, or a
/// warning that it starts from nothing although there is `step` or a later one. Empty when nothing is unexpected.
std::string words_of_beginning(const std::filesystem::path& root, const std::vector<RootEntry>& entries,
                               const Descent& descent, std::uint64_t step);

/// Rank-local: the error kNotFound about a checkpoint that is not there. If the path is that of a step in a root, the
/// error is Missing::kStep, and the message says which steps there are: "'run1/checkpoint-7' does not exist: 'run1' has
/// steps 10 and 20".
Error does_not_exist(const std::filesystem::path& checkpoint);

/// One line if the steps in manifest and name differ because of a copy or a renaming; otherwise empty.
std::string words_of_other_step(const std::filesystem::path& directory, const format::Manifest& manifest);

/// An unfinished directory that a conversion, or a save outside a root, made next to its destination.
struct Unfinished {
  std::filesystem::path directory;
  std::filesystem::path destination;
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;
};
/// Rank-local. Unfinished directories that do not belong to a root: being written, or left by a crash.
std::vector<Unfinished> list_unfinished(const std::filesystem::path& directory);

/// The checkpoints that count: those of whole states, those of parts (Options::save_only), or both. A checkpoint whose
/// manifest cannot be read may be any.
enum class Counted { kWholes, kParts, kAll };

/// The last saved checkpoint according to the readable manifests, complete or not: checkpoints of the named run come
/// first, then the highest generation, then the highest step. nullptr without any.
const RootEntry* head_of(const std::vector<RootEntry>& entries, const std::string& run_id,
                         Counted counted = Counted::kWholes);

/// Rank-local. The steps from which a run may resume, in the order in which to try them:
///   - last saved first, as far as manifests and `latest_written` tell; complete void steps last
///   - damaged steps are included, so that they can be named; a step with an unreadable manifest is before lower ones
///   - if a user named a step in the latest file, that step is the first, damaged or not, and no later step is included
/// Others than the `counted` ones are left out.
std::vector<RootEntry> resume_order(const std::filesystem::path& root, const std::vector<RootEntry>& entries,
                                    Counted counted = Counted::kWholes);

/// "; steps 10, 20 hold only a part of a state, to be loaded by the step", or "" if no complete step does.
std::string words_of_parts(const std::vector<RootEntry>& entries);

/// Rank-local. The step to resume from: the first complete one of resume_order(), or nothing. Writes nothing. Throws
///   - the error of a step before it that cannot be read: that step may be the newest
///   - kState if a user named a step, and neither that step nor one saved before it is complete
///   - kIntegrity if no step is complete because files are missing: the run is not new
std::optional<std::uint64_t> newest_step(const std::filesystem::path& root);
/// As above, with the result of list_root(root); returns nothing instead of throwing kIntegrity if files are missing.
std::optional<std::uint64_t> newest_step(const std::filesystem::path& root, const std::vector<RootEntry>& entries);

}  // namespace cairn::root
