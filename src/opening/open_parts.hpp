// The steps of opening a directory that open.cpp takes on one rank, and open_together.cpp on all.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "opening/open.hpp"

namespace cairn::opening {

// What the messages of opening have in common.

void put_strings(base::ByteWriter& out, const std::vector<std::string>& values);
std::vector<std::string> get_strings(base::ByteReader& in);
void put_map(base::ByteWriter& out, const std::map<std::string, std::string>& map);
std::map<std::string, std::string> get_map(base::ByteReader& in);
void put_part_of(base::ByteWriter& out, const OpenCheckpoint& checkpoint);
void get_part_of(base::ByteReader& in, OpenCheckpoint& checkpoint);
void put_about(base::ByteWriter& out, const interop::About& about);
interop::About get_about(base::ByteReader& in);
/// The manifest that the checkpoint has, or that it has none, without the list of its data files: thousands, that every
/// rank would parse.
void put_manifest(base::ByteWriter& out, const OpenCheckpoint& checkpoint);
void get_manifest(base::ByteReader& in, OpenCheckpoint& checkpoint);
/// `blocks`: of another rank's BlockRows; empty where it has none.
void attach_blocks(OpenCheckpoint& checkpoint, base::Bytes blocks);

/// Rank-local: manifest and block table as they stand on disk.
OpenedTexts read_texts(const std::filesystem::path& path);

/// Empty where there is none, or none that can be read.
std::string manifest_text(const std::filesystem::path& path);

/// What is in the directories of a checkpoint, but for headers.
struct Listed {
  std::filesystem::path directory;                       ///< as in OpenCheckpoint
  std::map<std::string, std::filesystem::path> part_of;  ///< as in OpenCheckpoint
  interop::Directory found;
  std::vector<std::string> data_files;  ///< by name; whose headers are to be read
  std::vector<std::string> indexes;     ///< whose texts are not in `found`, when they were not asked for
  std::vector<std::string> warnings;    ///< of files that are in two directories
  /// Files that are no safetensors and differ between two directories, with what says so: no tensor may be in them.
  std::map<std::string, std::string> differing;

  [[nodiscard]] std::filesystem::path path_of(const std::string& file) const;
};

enum class IndexTexts { kRead, kLeave };

/// Checks links, and what is in two directories. Throws as open_here().
Listed list_parts(const Parts& where, Links links, IndexTexts index_texts);

/// Reads files and folders of the directories for a dialect, when it asks; all paths must be inside, and links as `links`
/// says.
interop::FileAccess access_to(const Parts& where, Links links);

/// What is said of files that are in two directories.
void add_warnings(std::vector<std::string>& warnings, const Listed& listed);

/// Rank-local, of what was recognised: throws Error(kFormat) where a tensor is in one of the files that differ, and puts the
/// folders' files into `part_of`.
void place_files(OpenCheckpoint& checkpoint, const Listed& listed, const Parts& where);

/// Length and header of a safetensors file. Throws Error(kFormat) where it is none.
std::string header_bytes(const std::filesystem::path& path);
/// The text of an index.
std::string read_index_text(const std::filesystem::path& path);

/// As read_header(); the header's blocks must have the checksums of `blocks`.
format::SafetensorsHeader read_header_of(const std::filesystem::path& path,
                                         const std::optional<format::BlockRows>& blocks);

/// Checksum of a file, combined from those of its blocks, of which there may be a million; 0 where the table does not have
/// the file, or there is no table.
std::uint32_t file_digest_in(const std::optional<format::BlockRows>& blocks, std::string_view file);

/// Throws as open_here() unless the files are those of the manifest, and what is carried along is there. `digests`: of each
/// stored file, as file_digest_in().
void check_files(const OpenCheckpoint& checkpoint, std::span<const std::uint32_t> digests, Links links);

/// Collective: open_checkpoint() of what each rank sees.
OpenCheckpoint open_by_rank(comm::Communicator& communicator, Parts where, Links links);

/// Collective: the checkpoint, when it is a directory of whole tensors of which nothing need be said. Nothing on all ranks
/// alike where it is anything else, or anything is wrong: open_here() on one rank then says what. Each header and index is
/// read by one rank. Throws nothing that open_here() is to word.
std::optional<OpenCheckpoint> open_together(comm::Communicator& communicator, const Parts& where, Links links);

}  // namespace cairn::opening
