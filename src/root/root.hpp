// The root directory of a run: checkpoint-<step> directories, partial ones, and the file that names the latest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "root/standing.hpp"

namespace cairn::root {

// `.cairn/state.json` of a root: what changes after checkpoints were committed, and so is in no manifest.
//
//   latest_written   what Cairn last wrote to the file that names the latest; another value there was written by people
//   run_id           name of the run whose root it is (run_name.hpp)
//
// Keys of other versions are kept. Losing the file loses no checkpoint: a reader then knows nothing of what it would
// say.

inline constexpr const char* kRootStateFile = "state.json";

struct RootState {
  std::optional<std::uint64_t> latest_written;
  std::string run_id;  ///< empty: not said
};

/// Rank-local. Empty where there is no file, or a damaged one; throws where it cannot be read just now.
RootState read_root_state(const std::filesystem::path& root);

/// Rank-local, by the holder of the lease, after the file that names the latest was replaced: atomic and durable.
void note_latest(const std::filesystem::path& root, std::uint64_t step, const std::string& run_id);

/// Rank-local. The step in the file that names the latest; nothing where there is none, or, with a warning in the log, it
/// is not a step. Throws where the file cannot be read just now: people may have named a step in it.
std::optional<std::uint64_t> read_latest_file(const std::filesystem::path& root);

inline constexpr const char* kLatestFile = "latest_checkpointed_iteration.txt";
inline constexpr const char* kPartialSuffix = ".partial";

std::filesystem::path checkpoint_directory(const std::filesystem::path& root, std::uint64_t step);

/// What a saver makes beside `directory`, with its nonce in the name: the directory that it writes, and the one into
/// which it moves the old checkpoint while the new one gets the name (replaced_directory(d, n) / d.filename()).
std::filesystem::path partial_directory(const std::filesystem::path& directory, const std::string& nonce);
std::filesystem::path replaced_directory(const std::filesystem::path& directory, const std::string& nonce);
/// The next content of the file that names the latest.
std::filesystem::path latest_temporary(const std::filesystem::path& root, const std::string& nonce);

/// A name in a root that Cairn gives; all others are the user's.
struct RootName {
  enum class Kind { kCheckpoint, kPartial, kReplaced, kTemporary };
  Kind kind = Kind::kCheckpoint;
  std::string text;
  std::uint64_t step = 0;  ///< but of kTemporary
  std::string nonce;       ///< empty for a checkpoint, and for what Cairn 0.1 left
};
std::optional<RootName> parse_root_name(std::string_view name);

/// Rank-local. The newest complete checkpoint that waits beside `directory` while another one gets its name, or did
/// when its saver ended; nothing where there is none.
std::optional<std::filesystem::path> replaced_checkpoint(const std::filesystem::path& directory);

/// Rank-local. Highest epoch in the manifests that can be read, also where files are missing; 0 without any, and when
/// the root does not exist.
std::uint64_t highest_saved_epoch(const std::filesystem::path& root);

/// A name in a root of which Cairn makes something of its own: a step, or what is unfinished.
struct RootEntry : Standing {
  std::uint64_t step = 0;
  std::filesystem::path directory;  ///< where it is read: for a step that is being replaced, that of the old one
  bool partial = false;             ///< being written, or left by a crash: not looked at
  bool is_void = false;             ///< of a life that was left before this step: of a whole one `problem` says which
  bool is_of_other_run = false;     ///< void because another run saved it
  bool is_replaced = false;         ///< there is a checkpoint of this step under another name, too
  std::string problem;              ///< why it is not complete, or void; empty otherwise

  [[nodiscard]] bool is_complete() const { return !partial && condition == Condition::kWhole; }
};

/// Rank-local. Entries by step, partial ones after; an unreadable root throws. Void is what is void to the head.
/// Also void is what another run saved, unless the head descends from it.
std::vector<RootEntry> list_root(const std::filesystem::path& root);

/// What the first save of a life, of `step`, means for what the root has, in one line; empty where that is
/// what everybody would expect: what it abandons, or that it goes on from nothing though there is something.
std::string words_of_beginning(const std::filesystem::path& root, const std::vector<RootEntry>& entries,
                               const Descent& descent, std::uint64_t step);

/// Of a checkpoint that was copied or renamed, in one line; empty for one whose manifest has the step of its name, or none.
std::string words_of_other_step(const std::filesystem::path& directory, const format::Manifest& manifest);

/// What a conversion, or a save outside of a root, makes beside its destination.
struct Unfinished {
  std::filesystem::path directory;
  std::filesystem::path destination;
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;
};
/// Rank-local. Those in this directory that no step of a root is written in: being written, or left by a crash.
std::vector<Unfinished> list_unfinished(const std::filesystem::path& directory);

/// The checkpoint that was saved last, as far as manifests can be read, whether its files are there or not: of the run of
/// that name, if it has any, the one of the highest generation, and of the highest step where manifests have none. nullptr
/// without any.
const RootEntry* head_of(const std::vector<RootEntry>& entries, const std::string& run_id);

/// Rank-local. The steps from which a run may resume, in the order in which to try them: those that are not void, last
/// saved first, then those that are, which are better than nothing. What is damaged is among them, so that it can be
/// named; where its manifest cannot be read, it stands before the lower steps. It begins with what was saved last, as
/// far as manifests and `latest_written` tell; where people named a step in the latest file, with that one, damaged or
/// not, and has none that was saved later.
std::vector<RootEntry> resume_order(const std::filesystem::path& root, const std::vector<RootEntry>& entries);

/// Rank-local. The step to resume from, the first complete one of resume_order(); nothing where there is none. Throws
/// what is wrong with a step that stands before it and cannot be read: that one may be the newest; kState where people
/// named a step so that no complete one is left; kIntegrity where there is none because steps have lost files, so that the
/// run is not new. Writes nothing.
std::optional<std::uint64_t> newest_step(const std::filesystem::path& root);
/// The same of a listing that is at hand, list_root(root), which tells by itself which steps have lost files: nothing then.
std::optional<std::uint64_t> newest_step(const std::filesystem::path& root, const std::vector<RootEntry>& entries);

}  // namespace cairn::root
