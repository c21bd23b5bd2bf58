// Opens a checkpoint directory of any dialect: lists it, reads headers and indexes, recognises the dialect, describes
// the tensors. One process does so alone; the ranks of a communicator each read some of the headers and indexes, so
// that each is opened and read once.
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

namespace cairn::opening {

// Which symbolic links of a checkpoint directory are read through.
//
// A checkpoint that came from elsewhere may have links to anything that its reader may read: `convert` would copy it.
// So a link is followed only to where the checkpoint lies: into its own directory, or, from a snapshot of a Hugging
// Face cache, into the blobs of the same model (models--<name>/snapshots/<revision>/<file> -> ../../blobs/<hash>). The
// directory itself may be named through links: the user named it.

enum class Links { kInside, kFollow };

inline Links links_of(bool follow) { return follow ? Links::kFollow : Links::kInside; }

/// Rank-local. Throws Error(kFormat), naming link, target and what to do, for the first of `names`, which are relative
/// to `directory` and exist, that leads out of it. With kFollow nothing is looked at.
void check_links(const std::filesystem::path& directory, const std::vector<std::string>& names, Links links);

/// The same for the entries of the directory that are links to regular files. Links to directories are never followed.
void check_links(const std::filesystem::path& directory, const std::vector<os::DirectoryEntry>& entries, Links links);

/// Where a checkpoint is: its directory, or a single file; or several directories that each hold a part of its files,
/// as machines leave them that write to their own disks. They are read as if all files were in one directory.
struct Parts {
  Parts() = default;
  Parts(std::filesystem::path one) : paths{std::move(one)} {}
  Parts(std::vector<std::filesystem::path> all, Sight by = Sight::kAllRanks) : paths(std::move(all)), sight(by) {}

  [[nodiscard]] bool is_one() const { return paths.size() == 1; }
  std::vector<std::filesystem::path> paths;
  Sight sight = Sight::kAllRanks;
};

struct OpenCheckpoint : interop::Description {
  std::filesystem::path directory;                       ///< of several parts the one with the manifest, else the first
  std::map<std::string, std::filesystem::path> part_of;  ///< file -> directory, of those that are not in `directory`
  plan::PackedCheckpoint stored;                         ///< tensors in catalog order
  std::vector<std::uint32_t> group_of_file;              ///< plan::section_groups of `stored`
  std::vector<interop::QuantisedMoments> quantised;      ///< moments of which `stored` has the codes and scales
  /// `__metadata__` of each file of `stored`, from open_here alone; none for a staging file.
  std::vector<std::map<std::string, std::string>> metadata_of_files;
  /// Nothing: not Cairn's, nothing to verify against. From open_checkpoint without its data files, which `stored` has.
  std::optional<format::Manifest> manifest;
  std::uint32_t manifest_crc32c = 0;        ///< of the manifest's text, when there is one
  std::optional<format::BlockRows> blocks;  ///< nothing for a staging file, though it has a manifest

  /// The rank that reads each of stored.files; empty: any can. With it `directory` and `part_of` are those of the files
  /// that this rank sees, and rank 0 sees the files that are carried.
  std::vector<int> reader_of_file;

  /// The path of a data file, or of one that is carried.
  [[nodiscard]] std::filesystem::path path_of(const std::string& file) const {
    const auto part = part_of.find(file);
    return (part == part_of.end() ? directory : part->second) / file;
  }
};

/// Rank-local: reads and checks everything but the tensor data. Throws Error(kNotFound) when the directory does not
/// exist or holds no checkpoint, kFormat or kIntegrity for what is wrong, naming file and tensor. A "*.partial"
/// directory is refused. A step that is being replaced, or whose saver ended while it replaced it, is the old one, with
/// a warning. `where` may also be a single safetensors file, but none of Cairn's checkpoints (refuse_single_file), or a
/// staging file (.h5), which StageReader reads. kFormat for a link that leads out of the directory.
///
/// Several parts must all be directories (else kUsage). A file in two of them is read where it comes first, when both
/// have one size and, data files, one header; indexes and manifest must be equal. Data files or indexes that differ are
/// kFormat, naming both; a warning tells of other files, and of those that are alike. An error about a missing file
/// names it, and where it was looked for.
OpenCheckpoint open_here(const Parts& where, Links links = Links::kInside);

/// Throws Error(kUsage) for a file beside which cairn.json or cairn.blocks is: by itself it would be read unchecked.
void refuse_single_file(const std::filesystem::path& file);

/// Collective: as open_here, whose errors all ranks throw; the work is shared among them. With Sight::kEachRank each
/// rank gives the directories that it sees, and may give others; rank 0 must see the files that are carried, and those
/// that are not safetensors; a checkpoint of Cairn, or one file, is kUsage.
OpenCheckpoint open_checkpoint(comm::Communicator& communicator, const Parts& where, Links links = Links::kInside);

/// Collective: whether the directory has another manifest than that of this checksum, or none.
bool is_manifest_changed(comm::Communicator& communicator, const std::filesystem::path& directory,
                         std::uint32_t manifest_crc32c);

/// Collective, for an Error that all ranks have alike: whether it may come from another checkpoint having taken the
/// place of `opened` since. A load then starts over, at most kLoadAttempts times.
bool was_replaced(comm::Communicator& communicator, const OpenCheckpoint& opened, const Error& error);
inline constexpr int kLoadAttempts = 5;

/// Collective: what `read` gives of the checkpoint, which is opened again when another one takes its place meanwhile.
template <class Read>
auto with_open(comm::Communicator& communicator, const Parts& where, Links links, Read read) {
  for (int attempt = 1;; ++attempt) {
    const OpenCheckpoint opened = open_checkpoint(communicator, where, links);
    try {
      return read(opened);
    } catch (const comm::AgreedError& error) {
      if (attempt == kLoadAttempts || !was_replaced(communicator, opened, error)) throw;
    }
  }
}

/// Rank-local: reads and parses the header of one safetensors file.
format::SafetensorsHeader read_header(const std::filesystem::path& path);

/// Parses the texts of manifest and block table into `checkpoint`. Throws kFormat, or kIntegrity when the block table
/// is not the one that the manifest names.
void attach_texts(OpenCheckpoint& checkpoint, const std::string& manifest, base::Bytes blocks);

// An open checkpoint as bytes for the other ranks, but for the data files of its manifest and OpenCheckpoint::
// metadata_of_files.

base::Bytes encode_open(const OpenCheckpoint& checkpoint);
OpenCheckpoint decode_open(std::span<const std::byte> bytes);

}  // namespace cairn::opening
