// The steps of opening a directory that open.cpp takes on one rank, and open_together.cpp on all.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "directory/open.hpp"

namespace cairn::checkpoint {

// What the messages of opening have in common.

void put_strings(base::ByteWriter& out, const std::vector<std::string>& values);
std::vector<std::string> get_strings(base::ByteReader& in);
void put_map(base::ByteWriter& out, const std::map<std::string, std::string>& map);
std::map<std::string, std::string> get_map(base::ByteReader& in);
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

/// What is in the directory, but for headers; `data_files`: whose they are. Texts of indexes are left out of `json` and
/// named in `indexes`, when that is not null.
interop::Directory list_directory(const std::filesystem::path& path, const std::vector<os::DirectoryEntry>& entries,
                                  std::vector<std::string>& data_files, std::vector<std::string>* indexes);
/// Reads files and folders of the directory for a dialect, when it asks; all paths must be inside, and links as `links`
/// says.
interop::FileAccess access_to(const std::filesystem::path& directory, Links links);
/// The text of an index.
std::string read_index_text(const std::filesystem::path& path);

/// As read_header(); the header's blocks must have the checksums of `blocks`.
format::SafetensorsHeader read_header_of(const std::filesystem::path& path,
                                         const std::optional<format::BlockRows>& blocks);

/// Throws as open_here() unless the files are those of the manifest, and what is carried along is there.
void check_files(const OpenCheckpoint& checkpoint, Links links);

/// Collective: the checkpoint, when it is a directory of whole tensors of which nothing need be said. Nothing on all ranks
/// alike where it is anything else, or anything is wrong: open_here() on one rank then says what. Each header and index is
/// read by one rank. Throws nothing that open_here() is to word.
std::optional<OpenCheckpoint> open_together(comm::Communicator& communicator, const std::filesystem::path& path,
                                            Links links);

}  // namespace cairn::checkpoint
