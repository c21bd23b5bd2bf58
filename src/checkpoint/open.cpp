#include "checkpoint/open.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/checked.hpp"
#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/open_wire.hpp"
#include "checkpoint/root.hpp"
#include "checkpoint/stage_reader.hpp"
#include "comm/agree.hpp"
#include "hdf5/stage_file.hpp"
#include "os/file.hpp"
#include "plan/catalog.hpp"

namespace cairn::checkpoint {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kMaxJsonBytes = 1ULL << 30;
constexpr std::size_t kLfsPrefixBytes = 64;

interop::Directory read_directory(const fs::path& path) {
  interop::Directory directory;
  directory.path = path.string();
  for (const auto& entry : os::list_directory(path)) {
    if (entry.is_directory) {
      directory.folders.push_back(entry.name);
    } else if (!entry.is_regular) {
      continue;
    } else if (entry.name.ends_with(".safetensors")) {
      directory.safetensors[entry.name] = read_header(path / entry.name);
    } else if (entry.name.ends_with(".json") && entry.name != kManifestFile && entry.size_bytes <= kMaxJsonBytes) {
      directory.json[entry.name] = os::read_text(path / entry.name, kMaxJsonBytes);
    } else if (entry.name != kManifestFile && entry.name != kBlocksFile) {
      directory.others[entry.name] = entry.size_bytes;
    }
  }
  return directory;
}

OpenedTexts read_texts(const fs::path& path) {
  OpenedTexts texts;
  if (!os::exists(path / kManifestFile)) return texts;
  texts.manifest = os::read_text(path / kManifestFile, kMaxJsonBytes);
  const os::File blocks(path / kBlocksFile, os::OpenMode::kRead);
  texts.blocks.resize(blocks.size_bytes());
  blocks.read_at(texts.blocks, 0);
  return texts;
}

/// The manifest's files, the block table's and the directory's must be the same ones with the same sizes.
void check_against_manifest(const OpenCheckpoint& checkpoint) {
  const auto fail = [&](const std::string& what) -> Error {
    return {ErrorKind::kIntegrity, fmt::format("'{}': {}", base::printable(checkpoint.directory.string()), what)};
  };
  const auto& listed = checkpoint.manifest->data_files;
  const auto& table = checkpoint.blocks->files;
  for (const auto& file : listed) {
    const auto& stored = checkpoint.stored.files;
    const auto at = std::find_if(stored.begin(), stored.end(), [&](const auto& f) { return f.name == file.name; });
    if (at == stored.end()) throw fail(fmt::format("{} is missing, {} names it", file.name, kManifestFile));
    if (at->size_bytes != file.size_bytes) {
      throw fail(
          fmt::format("{} has {} bytes, {} names {}", file.name, at->size_bytes, kManifestFile, file.size_bytes));
    }
    const auto row = std::find_if(table.begin(), table.end(), [&](const auto& f) { return f.name == file.name; });
    if (row == table.end() || row->size_bytes != file.size_bytes) {
      throw fail(fmt::format("{} has no checksums of its size in {}", file.name, kBlocksFile));
    }
  }
  for (const auto& file : checkpoint.stored.files) {
    const bool known = std::any_of(listed.begin(), listed.end(), [&](const auto& f) { return f.name == file.name; });
    if (!known) throw fail(fmt::format("{} is not of this checkpoint: {} does not name it", file.name, kManifestFile));
  }
}

/// Catalog order, whatever order the dialect gave.
void sort_tensors(format::StoredCheckpoint& stored) {
  std::stable_sort(stored.tensors.begin(), stored.tensors.end(), [](const auto& a, const auto& b) {
    return plan::in_catalog_order(a.section, a.name, b.section, b.name);
  });
}

/// A single file is a directory with one data file.
interop::Directory single_file(const fs::path& path) {
  interop::Directory directory;
  directory.path = path.parent_path().string();
  directory.alone = true;
  directory.safetensors[path.filename().string()] = read_header(path);
  return directory;
}

}  // namespace

format::SafetensorsHeader read_header(const fs::path& path) {
  const os::File file(path, os::OpenMode::kRead);
  const std::uint64_t size = file.size_bytes();
  std::vector<std::byte> prefix(std::min<std::uint64_t>(size, kLfsPrefixBytes));
  file.read_at(prefix, 0);
  const std::uint64_t length = format::header_length(prefix, size, path.string());
  std::string json(length, '\0');
  file.read_at(std::as_writable_bytes(std::span(json)), format::kPrefixBytes);
  return format::parse_header(json, size, path.string());
}

OpenCheckpoint open_here(const fs::path& given) {
  const fs::path path = given.has_filename() ? given : given.parent_path();
  const std::string shown = base::printable(path.string());
  if (!os::exists(path)) throw Error(ErrorKind::kNotFound, fmt::format("'{}' does not exist", shown));
  const bool is_directory = fs::is_directory(path);
  if (!is_directory && (is_stage_name(path) || hdf5::looks_like_hdf5(path))) return open_stage(path);
  OpenCheckpoint checkpoint;
  checkpoint.directory = is_directory ? path : (path.has_parent_path() ? path.parent_path() : fs::path("."));
  if (is_directory && path.string().ends_with(kPartialSuffix)) {
    throw Error(ErrorKind::kNotFound,
                fmt::format("'{}' was never committed (a save is running, or was cut off); it is not "
                            "a checkpoint",
                            shown));
  }
  const OpenedTexts texts = is_directory ? read_texts(path) : OpenedTexts{};
  attach_texts(checkpoint, texts);
  auto recognised = interop::recognise(is_directory ? read_directory(path) : single_file(path));
  checkpoint.dialect = recognised.dialect;
  checkpoint.stored = std::move(recognised.stored);
  sort_tensors(checkpoint.stored);
  checkpoint.quantised = std::move(recognised.quantised);
  checkpoint.carried = std::move(recognised.carried);
  checkpoint.warnings = std::move(recognised.warnings);
  if (checkpoint.manifest) check_against_manifest(checkpoint);
  return checkpoint;
}

OpenCheckpoint open_checkpoint(comm::Communicator& communicator, const fs::path& path) {
  base::Bytes bytes;
  comm::agree_on_root(communicator, "open checkpoint", 0, [&] {
    const OpenCheckpoint opened = open_here(path);
    OpenedTexts texts;
    if (is_stage(opened)) {
      texts.manifest = format::encode_manifest(*opened.manifest);
    } else if (opened.manifest) {
      texts = read_texts(opened.directory);
    }
    bytes = encode_open(opened, texts);
  });
  communicator.share(bytes, 0);
  OpenCheckpoint checkpoint;
  comm::agree(communicator, "open checkpoint", [&] { checkpoint = decode_open(bytes); });
  return checkpoint;
}

}  // namespace cairn::checkpoint
