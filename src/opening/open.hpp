// Opens a checkpoint directory of any dialect: lists it, reads headers and indexes, recognises the dialect, describes
// the tensors. One process does so alone; the ranks of a communicator each read some of the headers and indexes, so
// that, unless an error occurs, each header and index is read once.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/error.hpp"
#include "cairn/options.hpp"
#include "comm/agree.hpp"
#include "comm/communicator.hpp"
#include "format/blocks.hpp"
#include "format/manifest.hpp"
#include "interop/directory.hpp"
#include "os/file.hpp"
#include "plan/stored_tensors.hpp"
#include "root/load_mark.hpp"

namespace cairn::opening {

// Symbolic links of a checkpoint directory, and the rule for following them.
//
// A checkpoint from elsewhere may have links to any file that its reader can read, and `convert` would copy the file.
// So links are followed only to places inside the checkpoint's own directory, or, from a snapshot of a Hugging Face
// cache, inside the blobs of the same model (models--<name>/snapshots/<revision>/<file> -> ../../blobs/<hash>).
// The path of the directory itself may contain links: the user named it.

enum class Links { kInside, kFollow };

/// Exceptions that the user allows when a directory is opened.
struct Allowed {
  Allowed(Links followed = Links::kInside) : links(followed) {}  // NOLINT: links alone are usual
  Links links;
  bool trusts_index = false;  ///< as interop::Directory::trusts_index
};

/// Works for all options with the members of cairn::Options.
template <class AnyOptions>
Allowed allowed_by(const AnyOptions& options) {
  Allowed allowed(options.follow_links ? Links::kFollow : Links::kInside);
  allowed.trusts_index = options.trust_index;
  return allowed;
}

/// Rank-local. Throws Error(kFormat), naming link, target and remedy, for the first of `names` that leads to a
/// forbidden place; kIo for a dangling link. `names` are relative to `directory`. With kFollow nothing is checked.
void check_links(const std::filesystem::path& directory, const std::vector<std::string>& names, Links links);

/// As above, for entries that are links to regular files. Links to directories are checked when a file in them is read.
void check_links(const std::filesystem::path& directory, const std::vector<os::DirectoryEntry>& entries, Links links);

/// The place of a checkpoint: its directory, a single file, or several directories that each hold a part of its files,
/// such as the local disks of several machines. Several directories are read as if all files were in one.
struct Parts {
  Parts() = default;
  Parts(std::filesystem::path one) : paths{std::move(one)} {}
  Parts(std::vector<std::filesystem::path> all, Sight by = Sight::kAllRanks) : paths(std::move(all)), sight(by) {}

  [[nodiscard]] bool is_one() const { return paths.size() == 1; }
  std::vector<std::filesystem::path> paths;
  Sight sight = Sight::kAllRanks;
};

struct OpenCheckpoint : interop::Description {
  std::filesystem::path directory;                       ///< with several parts, the one with the manifest, or
                                                         ///< the first if there is no manifest
  std::map<std::string, std::filesystem::path> part_of;  ///< file -> directory, for files outside of `directory`
  plan::PackedCheckpoint stored;                         ///< tensors in catalog order
  std::vector<std::uint32_t> group_of_file;              ///< plan::section_groups of `stored`
  std::vector<interop::QuantisedMoments> quantised;      ///< moments whose codes and scales are in `stored`
  /// `__metadata__` of each safetensors file, by name. Set only by open_here(); empty for a staging file.
  std::vector<std::map<std::string, std::string>> metadata_of_files;
  /// Nothing for a checkpoint that Cairn did not write, which has no checksums. After open_checkpoint() the manifest
  /// lists no data files; `stored` has them.
  std::optional<format::Manifest> manifest;
  /// After open_checkpoint(), on rank 0: keeps prunings by other processes from removing the step that is open.
  root::LoadMark mark;
  std::uint32_t manifest_crc32c = 0;        ///< checksum of the text of the directory's manifest; 0: none
  std::optional<format::BlockRows> blocks;  ///< nothing without a manifest, and for a staging file

  /// The rank that reads each of stored.files; empty: any rank can. If given, `directory` and `part_of` are for the
  /// files that this rank sees, and rank 0 sees the carried files.
  std::vector<int> reader_of_file;

  /// The path of a data file or a carried file.
  [[nodiscard]] std::filesystem::path path_of(const std::string& file) const {
    const auto part = part_of.find(file);
    return (part == part_of.end() ? directory : part->second) / file;
  }
};

/// Rank-local: reads and checks everything but the tensor data. Throws Error(kNotFound) if the directory does not exist
/// or holds no checkpoint, kFormat or kIntegrity for damage, naming file and tensor, and kFormat for a link that leads
/// out of the directory. A "*.partial" directory is refused. For a step that is being replaced, or whose saver ended
/// while replacing it, the old checkpoint is opened, with a warning. `where` may also be a staging file (.h5), which
/// StageReader reads, or a single safetensors file that is not part of one of Cairn's checkpoints (refuse_single_file).
///
/// If there are several parts, all must be directories (otherwise kUsage). A file in two parts is read from the first.
/// Copies of a data file must have the same size and header; copies of an index or of Cairn's own files must be equal
/// (otherwise kFormat, naming both). Warnings count the duplicate data files, and name other files that differ.
/// An error about a missing file names that file and the places that were searched.
OpenCheckpoint open_here(const Parts& where, const Allowed& allowed = {});

/// Throws Error(kUsage) for a file next to cairn.json or cairn.blocks, because a single file is read unchecked.
void refuse_single_file(const std::filesystem::path& file);

/// Collective: as open_here(); all ranks throw its errors, and share the work. With Sight::kEachRank each rank
/// gives the directories that it sees, which may differ. Carried files that rank 0 does not see are left behind, with a
/// warning. One of Cairn's checkpoints, or a single file, is kUsage.
OpenCheckpoint open_checkpoint(comm::Communicator& communicator, const Parts& where, const Allowed& allowed = {});

/// Collective: whether the directory's manifest is missing or has a checksum other than `manifest_crc32c`.
bool is_manifest_changed(comm::Communicator& communicator, const std::filesystem::path& directory,
                         std::uint32_t manifest_crc32c);

/// Collective, for an Error that is the same on all ranks: whether the cause may be that another checkpoint has taken
/// the place of `opened`. A load then starts over; kLoadAttempts limits the attempts.
bool was_replaced(comm::Communicator& communicator, const OpenCheckpoint& opened, const Error& error);
inline constexpr int kLoadAttempts = 5;

/// Collective: opens the checkpoint, and returns the result of `read`. Starts over if another checkpoint replaces it.
template <class Read>
auto with_open(comm::Communicator& communicator, const Parts& where, const Allowed& allowed, Read read) {
  for (int attempt = 1;; ++attempt) {
    const OpenCheckpoint opened = open_checkpoint(communicator, where, allowed);
    try {
      return read(opened);
    } catch (const comm::AgreedError& error) {
      if (attempt == kLoadAttempts || !was_replaced(communicator, opened, error)) throw;
    }
  }
}

/// Rank-local: reads and parses the header of one safetensors file.
format::SafetensorsHeader read_header(const std::filesystem::path& path);

/// Parses manifest and block table into `checkpoint`. Throws kFormat, or kIntegrity if the block table has a checksum
/// different from the one in the manifest.
void attach_texts(OpenCheckpoint& checkpoint, const std::string& manifest, base::Bytes blocks);

// An open checkpoint as bytes for the other ranks. The bytes leave out the data files of the manifest, and
// OpenCheckpoint::metadata_of_files.

base::Bytes encode_open(const OpenCheckpoint& checkpoint);
OpenCheckpoint decode_open(std::span<const std::byte> bytes);

}  // namespace cairn::opening
