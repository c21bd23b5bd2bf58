// The root directory of a run: checkpoint-<step> directories, partial ones, and the file that names the latest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cairn/error.hpp"
#include "format/manifest.hpp"

namespace cairn::checkpoint {

// `.cairn/state.json` of a root: what changes after checkpoints were committed, and so is in no manifest.
//
//   latest_written   what Cairn last wrote to the file that names the latest; another value there was written by people
//
// Keys of other versions are kept. Losing the file loses no checkpoint: a reader then knows nothing of what it would
// say.

inline constexpr const char* kRootStateFile = "state.json";

struct RootState {
  std::optional<std::uint64_t> latest_written;
};

/// Rank-local. Empty where there is no file or none that can be read.
RootState read_root_state(const std::filesystem::path& root) noexcept;

/// Rank-local, by the holder of the lease, after the file that names the latest was replaced: atomic and durable.
void note_latest(const std::filesystem::path& root, std::uint64_t step);

/// Rank-local. The step in the file that names the latest; nothing where there is none, or it is not a step.
std::optional<std::uint64_t> read_latest_file(const std::filesystem::path& root) noexcept;

inline constexpr const char* kLatestFile = "latest_checkpointed_iteration.txt";
inline constexpr const char* kManifestFile = "cairn.json";
inline constexpr const char* kBlocksFile = "cairn.blocks";
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

/// Rank-local. (epoch, save counter) of a complete checkpoint, by which two of one step are compared; nothing when it
/// is not complete. Both are 0 in manifests that do not have them.
struct Generation {
  std::uint64_t epoch = 0;
  std::uint64_t counter = 0;
  auto operator<=>(const Generation&) const = default;
};
std::optional<Generation> generation_of(const std::filesystem::path& directory);

/// Rank-local. The newest complete checkpoint that waits beside `directory` while another one gets its name, or did
/// when its saver ended; nothing where there is none.
std::optional<std::filesystem::path> replaced_checkpoint(const std::filesystem::path& directory);

/// Rank-local. Highest epoch in the manifests that can be read, also where files are missing; 0 without any, and when the root does not exist.
std::uint64_t highest_saved_epoch(const std::filesystem::path& root);

/// Whether this process, or the machine, has no memory or file descriptor left: that says nothing of a file.
bool is_shortage(const Error& error);

struct RootEntry {
  std::uint64_t step = 0;
  std::filesystem::path directory;  ///< where it is read: for a step that is being replaced, that of the old one
  bool partial = false;             ///< being written, or left by a crash
  bool complete = false;            ///< manifest readable, and every file it names is there with its size
  std::string problem;              ///< why not complete
  std::uint64_t bytes = 0;          ///< of data files
  std::uint64_t files = 0;
  bool has_manifest = false;          ///< one that can be read, also when files are missing
  Generation generation;              ///< with has_manifest
  std::vector<format::Life> lineage;  ///< with has_manifest
  bool is_void = false;               ///< complete, but of a life that was left before this step: `problem` says which
  bool is_replaced = false;           ///< there is a checkpoint of this step under another name, too
};

/// The lives that a checkpoint or a saver is of: its own, and those that it descends from. FORMAT.md has the rules.
struct Descent {
  std::uint64_t epoch = 0;
  std::vector<format::Life> lineage;  ///< empty: nothing was resumed, and nothing is void to it
};
/// Why a complete checkpoint of that step and epoch is void to what descends so; nothing when it is not. What was saved
/// before there were epochs (0) is void only beyond a step at which epoch 0 was left.
std::optional<std::string> why_void(const Descent& descent, std::uint64_t step, std::uint64_t epoch);

/// Rank-local. Entries by step, partial ones after; an unreadable root throws. Void is what is void to the head.
std::vector<RootEntry> list_root(const std::filesystem::path& root);

/// What a conversion, or a save outside of a root, makes beside its destination.
struct Unfinished {
  std::filesystem::path directory;
  std::filesystem::path destination;
  std::uint64_t bytes = 0;
  std::uint64_t files = 0;
};
/// Rank-local. Those in this directory that no step of a root is written in: being written, or left by a crash.
std::vector<Unfinished> list_unfinished(const std::filesystem::path& directory);

/// The complete checkpoint that was saved last: of the highest generation, and of the highest step where manifests have
/// none. nullptr without any.
const RootEntry* head_of(const std::vector<RootEntry>& entries);

/// Rank-local. The step to resume from: the head's, unless the file that names the latest was edited to name another
/// complete step that is not void. Writes nothing.
std::optional<std::uint64_t> newest_step(const std::filesystem::path& root);
/// The same of a listing that is at hand: list_root(root).
std::optional<std::uint64_t> newest_step(const std::filesystem::path& root, const std::vector<RootEntry>& entries);

/// Rank-local. The steps from which a run may resume, in the order in which to try them: those that are not void, also to
/// the newest of which the manifest can be read, last saved first. What is damaged (not complete) is among them, so that
/// it can be named; where its manifest cannot be read, it stands before the lower steps. It begins with newest_step(), or
/// with what is damaged and newer; where people named a step in the latest file, with that one, damaged or not, and has
/// none that was saved later.
std::vector<RootEntry> resume_order(const std::filesystem::path& root, const std::vector<RootEntry>& entries);

}  // namespace cairn::checkpoint
