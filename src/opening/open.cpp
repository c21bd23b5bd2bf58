#include "opening/open.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "comm/agree.hpp"
#include "format/blocks.hpp"
#include "format/crc32c.hpp"
#include "format/hf_index.hpp"
#include "format/limits.hpp"
#include "hdf5/stage_file.hpp"
#include "interop/file_names.hpp"
#include "opening/carried.hpp"
#include "opening/open_parts.hpp"
#include "os/file.hpp"
#include "os/pages.hpp"
#include "plan/extents.hpp"
#include "plan/stored_tensors.hpp"
#include "root/root.hpp"

namespace cairn::opening {

namespace limits = format::limits;

namespace {

namespace fs = std::filesystem;

bool is_inside(const fs::path& path, const fs::path& directory) {
  return std::mismatch(directory.begin(), directory.end(), path.begin(), path.end()).first == directory.end();
}

/// "…/models--a--b/blobs" for "…/models--a--b/snapshots/<revision>" and what is below.
std::optional<fs::path> blobs_of(const fs::path& directory) {
  fs::path before;
  for (fs::path at = directory; at.has_relative_path(); at = at.parent_path()) {
    if (before.filename() == "snapshots" && at.filename().string().starts_with("models--")) return at / "blobs";
    before = at;
  }
  return std::nullopt;
}

}  // namespace

void check_links(const fs::path& directory, const std::vector<std::string>& names, Links links) {
  if (links == Links::kFollow || names.empty()) return;
  std::error_code failed;
  const fs::path real = fs::canonical(directory, failed);
  const std::optional<fs::path> blobs = blobs_of(real);
  for (const std::string& name : names) {
    const fs::path target = failed ? fs::path() : fs::canonical(directory / name, failed);
    if (failed) {
      throw Error(ErrorKind::kIo, fmt::format("cannot follow '{}': {}", os::shown(directory / name), failed.message()),
                  {failed.value(), (directory / name).native()});
    }
    if (is_inside(target, real) || (blobs && is_inside(target, *blobs))) continue;
    throw Error(ErrorKind::kFormat,
                fmt::format("'{}' is a link to '{}', outside of the checkpoint; give --follow-links "
                            "(Options::follow_links) when it may be read",
                            os::shown(directory / name), os::shown(target)),
                {0, (directory / name).native()});
  }
}

void check_links(const fs::path& directory, const std::vector<os::DirectoryEntry>& entries, Links links) {
  std::vector<std::string> names;
  for (const os::DirectoryEntry& entry : entries) {
    if (entry.is_link && entry.is_regular) names.push_back(entry.name);
  }
  check_links(directory, names, links);
}

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kLfsPrefixBytes = 64;
constexpr int kOpenAttempts = 8;

/// How many files ahead the kernel is asked for their first block, so that storage is not waited for file by file.
constexpr std::size_t kFilesAhead = 8;

const format::BlockRow* blocks_of(const fs::path& path, std::uint64_t size, const format::BlockRows& table) {
  const auto row = std::ranges::find(table.files(), path.filename().string(), &format::BlockRow::name);
  return row == table.files().end() || row->size_bytes() != size ? nullptr : &*row;
}

/// As read_header(), of blocks that have their checksums: none is parsed before. A file that the table does not have is
/// named by who compares the lists.
format::SafetensorsHeader read_checked_header(const fs::path& path, const format::BlockRows& table) {
  const os::File file(path, os::OpenMode::kRead);
  const std::uint64_t size = file.size_bytes();
  const format::BlockRow* const row = blocks_of(path, size, table);
  if (row == nullptr) return read_header(path);
  base::Bytes bytes;
  std::uint64_t header_end = format::kPrefixBytes;
  for (std::uint64_t at = 0; at < std::min(header_end, size); at += table.block_bytes()) {
    bytes.resize(std::min(at + table.block_bytes(), size));
    const auto block = std::span(bytes).subspan(at);
    file.read_at(block, at);
    const std::uint64_t number = at / table.block_bytes();
    const std::uint32_t found = format::crc32c(block);
    const std::uint32_t written = row->crc(number);
    if (found != written) {
      throw Error(ErrorKind::kIntegrity,
                  fmt::format("'{}': block {}, which holds its header, {}: the file was damaged or changed since",
                              base::printable(path.string()), number, format::mismatch_words(found, written)));
    }
    if (at < format::kPrefixBytes && bytes.size() >= format::kPrefixBytes) {  // a block may be smaller
      header_end += format::header_length(bytes, size, path.string());
    }
  }
  if (size < format::kPrefixBytes)
    (void)format::header_length(bytes, size, path.string());  // says that it is too small
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return format::parse_header(text.substr(format::kPrefixBytes, header_end - format::kPrefixBytes), size,
                              path.string());
}

/// The headers of all data files.
void read_headers(Listed& listed, const std::optional<format::BlockRows>& blocks) {
  const std::vector<std::string>& names = listed.data_files;
  std::size_t announced = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    for (; blocks && announced < std::min(names.size(), i + kFilesAhead); ++announced) {
      os::read_ahead(os::File(listed.path_of(names[announced]), os::OpenMode::kRead), 0, blocks->block_bytes());
    }
    const fs::path path = listed.path_of(names[i]);
    listed.found.safetensors[names[i]] = os::about(path, [&] { return read_header_of(path, blocks); });
  }
}

/// Of what the manifest lists beside data: there, and of its size. Contents are compared where they are read.
void check_carried(const OpenCheckpoint& checkpoint, Links links) {
  for (const auto& file : checkpoint.manifest->carried_files) {
    const fs::path path = checkpoint.path_of(file.name);
    const std::string shown = base::printable(path.string());
    if (!os::exists(path)) {
      throw Error(ErrorKind::kIntegrity, fmt::format("'{}' is missing; {} names it", shown, format::kManifestFile),
                  {0, path.native()});
    }
    // Those of the directory itself are checked; a manifest may name a file in a folder that is a link.
    if (file.name.find('/') != std::string::npos) check_links(checkpoint.directory, std::vector{file.name}, links);
    const std::uint64_t size = os::file_size(path);
    if (size == file.size_bytes) continue;
    throw Error(ErrorKind::kIntegrity, fmt::format("'{}' has {} bytes, {} were written", shown, size, file.size_bytes),
                {0, path.native()});
  }
}

/// The manifest's files, the block table's and the directory's must be the same ones with the same sizes.
void check_against_manifest(const OpenCheckpoint& checkpoint, std::span<const std::uint32_t> digests) {
  const auto fail = [&](const std::string& what) -> Error {
    return {ErrorKind::kIntegrity, fmt::format("'{}': {}", base::printable(checkpoint.directory.string()), what)};
  };
  const auto& listed = checkpoint.manifest->data_files;
  std::map<std::string_view, const format::StoredFile*> stored;
  for (const auto& file : checkpoint.stored.files) stored.emplace(file.name, &file);
  std::map<std::string_view, const format::BlockRow*> rows;
  for (const auto& row : checkpoint.blocks->files()) rows.emplace(row.name(), &row);
  std::set<std::string_view> known;
  for (const auto& file : listed) {
    known.insert(file.name);
    const auto at = stored.find(file.name);
    if (at == stored.end()) throw fail(fmt::format("{} is missing, {} names it", file.name, format::kManifestFile));
    if (at->second->size_bytes != file.size_bytes) {
      throw fail(fmt::format("{} has {} bytes, {} names {}", file.name, at->second->size_bytes, format::kManifestFile,
                             file.size_bytes));
    }
    const auto row = rows.find(file.name);
    if (row == rows.end() || row->second->size_bytes() != file.size_bytes) {
      throw fail(fmt::format("{} has no checksums of its size in {}", file.name, format::kBlocksFile));
    }
    const std::uint32_t digest = digests[static_cast<std::size_t>(at->second - checkpoint.stored.files.data())];
    if (digest != file.crc32c) {
      throw fail(fmt::format("{}: {} names checksum {:08x}, the blocks in {} have {:08x}", file.name,
                             format::kManifestFile, file.crc32c, format::kBlocksFile, digest));
    }
  }
  for (const auto& file : checkpoint.stored.files) {
    if (known.contains(file.name)) continue;
    throw fail(fmt::format("{} is not of this checkpoint: {} does not name it", file.name, format::kManifestFile));
  }
}

/// Of each stored file, as file_digest_in().
std::vector<std::uint32_t> file_digests(const OpenCheckpoint& checkpoint) {
  std::vector<std::uint32_t> digests(checkpoint.stored.files.size());
  std::map<std::string_view, std::uint32_t*> by_name;
  for (std::size_t i = 0; i < digests.size(); ++i) by_name.emplace(checkpoint.stored.files[i].name, &digests[i]);
  for (const format::BlockRow& row : checkpoint.blocks->files()) {
    const auto at = by_name.find(row.name());
    if (at != by_name.end()) *at->second = format::file_digest(row.unpacked(), checkpoint.blocks->block_bytes());
  }
  return digests;
}

/// A single file is a directory with one data file.
interop::Directory single_file(const fs::path& path) {
  interop::Directory directory;
  directory.path = path.parent_path().string();
  directory.alone = true;
  directory.safetensors[path.filename().string()] = read_header(path);
  return directory;
}

OpenCheckpoint open_directories(const Parts& where, Links links) {
  Listed listed = list_parts(where, links, IndexTexts::kRead);
  OpenCheckpoint checkpoint;
  checkpoint.directory = listed.directory;
  checkpoint.part_of = listed.part_of;
  attach_texts(checkpoint, read_texts(listed.directory));
  if (checkpoint.manifest) interop::take_manifest(listed.found, *checkpoint.manifest);
  read_headers(listed, checkpoint.blocks);
  listed.found.access = access_to(where, links);
  recognise_files(checkpoint, std::move(listed.found));
  place_files(checkpoint, listed, where);
  add_warnings(checkpoint.warnings, listed);
  if (checkpoint.manifest) check_files(checkpoint, file_digests(checkpoint), links);
  return checkpoint;
}

OpenCheckpoint open_once(const fs::path& path, Links links) {
  const std::string shown = base::printable(path.string());
  if (!os::exists(path)) throw Error(ErrorKind::kNotFound, fmt::format("'{}' does not exist", shown));
  if (fs::is_directory(path)) return open_directories(path, links);
  if (is_stage_name(path) || hdf5::looks_like_hdf5(path)) return open_stage(path);
  refuse_single_file(path);
  OpenCheckpoint checkpoint;
  checkpoint.directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  recognise_files(checkpoint, single_file(path));
  return checkpoint;
}

/// A checkpoint that is replaced meanwhile is opened again; one whose name is free for a moment, or was left so by a
/// crash, is opened where the old one waits.
OpenCheckpoint open_one(const fs::path& given, Links links) {
  const fs::path name = given.has_filename() ? given : given.parent_path();
  fs::path path = name;
  for (int attempt = 1; attempt <= kOpenAttempts; ++attempt) {
    const std::string before = manifest_text(path);
    try {
      OpenCheckpoint opened = os::about(path, [&] { return open_once(path, links); });
      if (manifest_text(path) != before) continue;
      if (path != name) {
        opened.warnings.push_back(
            fmt::format("'{}' is being replaced, or was when its saver ended: this is "
                        "the old one",
                        base::printable(name.string())));
      }
      return opened;
    } catch (const Error&) {
      if (path != name) {
        path = name;  // the old one is gone: the new one has the name
      } else if (const auto replaced =
                     root::may_be_whole(root::look_at(name)) ? std::nullopt : root::replaced_checkpoint(name)) {
        path = *replaced;
      } else if (manifest_text(path) == before) {
        throw;
      }
    }
  }
  throw Error(ErrorKind::kIo,
              fmt::format("'{}' was replaced {} times while it was opened; try again when its saver is "
                          "done",
                          base::printable(name.string()), kOpenAttempts),
              {0, name.native()});
}

}  // namespace

void refuse_single_file(const fs::path& file) {
  const fs::path directory = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (!os::exists(directory / format::kManifestFile) && !os::exists(directory / format::kBlocksFile)) return;
  throw Error(ErrorKind::kUsage,
              fmt::format("'{}' is one file of the checkpoint '{}', which has the checksums: give the directory",
                          os::shown(file), os::shown(directory)),
              {0, file.native()});
}

OpenedTexts read_texts(const fs::path& path) {
  OpenedTexts texts;
  if (!os::exists(path / format::kManifestFile)) {
    root::refuse_lost_manifest(path);
    return texts;
  }
  texts.manifest = os::read_text(path / format::kManifestFile, limits::kManifestBytes);
  const os::File blocks(path / format::kBlocksFile, os::OpenMode::kRead);
  if (blocks.size_bytes() > limits::kBlockTableBytes) {
    throw Error(ErrorKind::kFormat,
                fmt::format("'{}' has {} bytes; at most {} are read", base::printable(blocks.path().string()),
                            blocks.size_bytes(), limits::kBlockTableBytes));
  }
  texts.blocks.resize(blocks.size_bytes());
  blocks.read_at(texts.blocks, 0);
  return texts;
}

std::string manifest_text(const fs::path& path) {
  try {
    return fs::is_directory(path) && os::exists(path / format::kManifestFile)
               ? os::read_text(path / format::kManifestFile, limits::kManifestBytes)
               : "";
  } catch (const std::bad_alloc&) {
    throw;  // says nothing of the manifest
  } catch (const std::exception&) {
    return "";
  }
}

std::string read_index_text(const fs::path& path) { return os::read_text(path, limits::kIndexBytes); }

format::SafetensorsHeader read_header_of(const fs::path& path, const std::optional<format::BlockRows>& blocks) {
  return blocks ? read_checked_header(path, *blocks) : read_header(path);
}

std::uint32_t file_digest_in(const std::optional<format::BlockRows>& blocks, std::string_view file) {
  if (!blocks) return 0;
  const auto row = std::ranges::find(blocks->files(), file, &format::BlockRow::name);
  return row == blocks->files().end() ? 0 : format::file_digest(row->unpacked(), blocks->block_bytes());
}

void check_files(const OpenCheckpoint& checkpoint, std::span<const std::uint32_t> digests, Links links) {
  check_against_manifest(checkpoint, digests);
  check_carried(checkpoint, links);
}

format::SafetensorsHeader read_header(const fs::path& path) {
  const os::File file(path, os::OpenMode::kRead);
  const std::uint64_t size = file.size_bytes();
  std::vector<std::byte> prefix(std::min<std::uint64_t>(size, kLfsPrefixBytes));
  file.read_at(prefix, 0);
  return os::about(path, [&] {
    const std::uint64_t length = format::header_length(prefix, size, path.string());
    std::string json(length, '\0');
    file.read_at(std::as_writable_bytes(std::span(json)), format::kPrefixBytes);
    return format::parse_header(json, size, path.string());
  });
}

void recognise_files(OpenCheckpoint& checkpoint, interop::Directory directory) {
  interop::Recognised recognised = interop::recognise(directory);
  // The tensors lead into recognised.stores, and nowhere else into the directory.
  directory.json.clear();
  for (auto& [name, header] : directory.safetensors) header.tensors = {};
  checkpoint.about = std::move(recognised.about);
  checkpoint.stored = {std::move(recognised.files), plan::StoredTensors(recognised.tensors)};
  checkpoint.group_of_file = plan::section_groups(checkpoint.stored);
  for (auto& [name, header] : directory.safetensors) checkpoint.metadata_of_files.push_back(std::move(header.metadata));
  checkpoint.quantised = std::move(recognised.quantised);
  checkpoint.metadata = std::move(recognised.metadata);
  checkpoint.disputed_metadata = std::move(recognised.disputed_metadata);
  checkpoint.carried = std::move(recognised.carried);
  checkpoint.warnings = std::move(recognised.warnings);
}

OpenCheckpoint open_here(const Parts& where, Links links) {
  return where.is_one() ? open_one(where.paths.front(), links) : open_directories(where, links);
}

bool is_manifest_changed(comm::Communicator& communicator, const fs::path& directory, std::uint32_t manifest_crc32c) {
  std::uint64_t changed = 0;
  comm::agree_on_root(communicator, "look whether the checkpoint was replaced", 0, [&] {
    const std::string text = manifest_text(directory);
    changed = text.empty() || format::crc32c(base::as_bytes(text)) != manifest_crc32c ? 1 : 0;
  });
  return communicator.max(changed) != 0;
}

bool was_replaced(comm::Communicator& communicator, const OpenCheckpoint& opened, const Error& error) {
  // All ranks have the same text, so all ask or none: an error of MPI itself, which only some may have, names no file.
  const std::string directory = os::shown(opened.directory);
  if (!opened.manifest || is_stage(opened)) return false;  // a staging file has its manifest in itself
  if (std::string_view(error.what()).find(directory) == std::string_view::npos) return false;
  return is_manifest_changed(communicator, opened.directory, opened.manifest_crc32c);
}

OpenCheckpoint open_checkpoint(comm::Communicator& communicator, const Parts& where, Links links) {
  if (where.sight == Sight::kEachRank) return open_by_rank(communicator, where, links);
  if (communicator.size() > 1) {
    if (auto opened = open_together(communicator, where, links)) return std::move(*opened);
  }
  base::Bytes bytes;
  comm::agree_on_root(communicator, "open checkpoint", 0, [&] { bytes = encode_open(open_here(where, links)); });
  communicator.share(bytes, 0);
  OpenCheckpoint checkpoint;
  comm::agree(communicator, "open checkpoint", [&] { checkpoint = decode_open(bytes); });
  return checkpoint;
}

}  // namespace cairn::opening
