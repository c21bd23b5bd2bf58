// The directory of a checkpoint, or several directories that each hold some of its files, before the tensors are known:
// listing them, and reading files in them. Rank-local.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/blocks.hpp"
#include "interop/directory.hpp"
#include "opening/open.hpp"
#include "os/file.hpp"
#include "root/root.hpp"

namespace cairn::opening {

/// A small file, or the JSON header of a data file, as it is on disk.
struct FileText {
  std::string text;
  std::uint64_t file_bytes = 0;
};
using FileTexts = std::map<std::string, FileText>;  ///< by name

/// A directory, or several combined, before its tensors are known.
struct Listing {
  OpenCheckpoint opened;               ///< each step adds to it; stored.files: the data files, sorted by name
  std::vector<std::string> indexes;    ///< indexes that are read with the headers
  std::vector<std::string> sections;   ///< section of each file; empty for a file without tensors
  std::vector<std::uint32_t> digests;  ///< on rank 0: digest of each file, from its blocks (file_digest_in)
  interop::Directory found;            ///< on rank 0
  std::vector<std::string> warnings;   ///< about files that are in two directories
  /// Files other than safetensors that differ between directories, each with a message; they must not hold a tensor.
  std::map<std::string, std::string> differing;
};

enum class IndexTexts { kRead, kLeave };

/// Lists the directories; checks links, and files that are in two directories. Throws as open_here().
Listing list_parts(const Parts& where, Links links, IndexTexts index_texts);

/// Reads files and folders of the directories on request of a dialect. All paths must be inside the directories, and
/// links must satisfy `links`.
interop::FileAccess access_to(const Parts& where, Links links);

/// Rank-local: recognises a directory that was listed and read; check_files() compares it with the manifest. Throws as
/// interop::recognise(), and Error(kFormat) if a tensor is in one of the differing files.
OpenCheckpoint describe(Listing listing, const Parts& where);

/// Rank-local: names the folders of a directory that hold data, for those who point at a folder too high
/// (interop::hint_of_folders); "" if there are none, or if the directory cannot be listed.
std::string hint_of_folders(const std::filesystem::path& directory);

/// Rank-local: whether a step of a root has no file of Cairn's, so that it may be of another system.
bool may_be_foreign(const root::RootEntry& step);

struct StepProblem {
  std::string words;         ///< one line for people: why the step is not one of Cairn's complete checkpoints
  bool is_readable = false;  ///< a checkpoint of another system, which can be read
};
/// Rank-local: RootEntry::problem. For a step that may be foreign, opens it, and says of which system it is, or why it
/// cannot be read.
StepProblem problem_of_step(const root::RootEntry& step, const Allowed& allowed = {});

/// Adds the warnings about files that are in two directories.
void add_warnings(std::vector<std::string>& warnings, const Listing& listing);

/// Warns of aliases of tensors that are not stored and, unless Cairn wrote the checkpoint, of weights that ZeRO-3 left
/// without elements.
void warn_of_tensors(OpenCheckpoint& opened);

/// The header of a safetensors file. Throws Error(kIntegrity) if a block of the header does not have its checksum in
/// `blocks`, Error(kFormat) if the file is not safetensors.
FileText read_header_text(const os::File& file, const std::optional<format::BlockRows>& blocks = {});

/// Limit on the bytes compared in two files of one name, except safetensors, indexes and Cairn's own files.
inline constexpr std::uint64_t kComparedBytes = 1ULL << 20;
std::string beginning_of(const std::filesystem::path& path, std::uint64_t most_bytes = kComparedBytes);

/// The checksum of a file, combined from those of its blocks, of which there may be a million; 0 if there is no table,
/// or the table does not have the file.
std::uint32_t file_digest_in(const std::optional<format::BlockRows>& blocks, std::string_view file);

/// Throws as open_here() unless the data files are those of the manifest, and its carried files exist with their sizes.
/// `digests`: file_digest_in() of each stored file.
void check_files(const OpenCheckpoint& checkpoint, std::span<const std::uint32_t> digests, Links links);

/// The header of a file that the user named. If it is not a safetensors file, its name may tell what it is.
format::SafetensorsHeader header_alone(const std::filesystem::path& path);

}  // namespace cairn::opening
