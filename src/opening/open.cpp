#include "opening/open.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <deque>
#include <new>
#include <set>
#include <string_view>
#include <system_error>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "format/crc32c.hpp"
#include "format/hf_index.hpp"
#include "format/limits.hpp"
#include "hdf5/stage_file.hpp"
#include "interop/file_names.hpp"
#include "interop/folders.hpp"
#include "opening/carried.hpp"
#include "opening/open_steps.hpp"
#include "os/page_cache.hpp"
#include "plan/extents.hpp"
#include "root/root.hpp"

namespace cairn::opening {

namespace limits = format::limits;

namespace {

namespace fs = std::filesystem;

bool is_inside(const fs::path& path, const fs::path& directory) {
  return std::mismatch(directory.begin(), directory.end(), path.begin(), path.end()).first == directory.end();
}

/// "…/models--a--b/blobs" for "…/models--a--b/snapshots/<revision>" and paths below it.
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

namespace {

constexpr std::size_t kLfsPrefixBytes = 64;
constexpr int kOpenAttempts = 8;

/// The kernel is asked for the first block of this many files ahead, so that storage latencies overlap.
constexpr std::size_t kFilesAhead = 8;

const format::BlockRow* blocks_of(const fs::path& path, std::uint64_t size, const format::BlockRows& table) {
  const auto row = std::ranges::find(table.files(), path.filename().string(), &format::BlockRow::name);
  return row == table.files().end() || row->size_bytes() != size ? nullptr : &*row;
}

/// The header, from blocks with known checksums; each block is checked before it is parsed.
std::string checked_header(const os::File& file, const format::BlockRow& row, std::uint64_t block_bytes) {
  const std::uint64_t size = row.size_bytes();
  const std::string path = file.path().string();
  base::Bytes bytes;
  std::uint64_t header_end = format::kPrefixBytes;
  for (std::uint64_t at = 0; at < std::min(header_end, size); at += block_bytes) {
    bytes.resize(std::min(at + block_bytes, size));
    const auto block = std::span(bytes).subspan(at);
    file.read_at(block, at);
    const std::uint64_t number = at / block_bytes;
    const std::uint32_t found = format::crc32c(block);
    const std::uint32_t written = row.crc(number);
    if (found != written) {
      throw Error(ErrorKind::kIntegrity,
                  fmt::format("'{}': block {}, which holds its header, {}: the file was damaged or changed since",
                              base::printable(path), number, format::mismatch_words(found, written)));
    }
    if (at < format::kPrefixBytes && bytes.size() >= format::kPrefixBytes) {  // a block may be smaller than the prefix
      header_end += format::header_length(bytes, size, path);
    }
  }
  if (size < format::kPrefixBytes) (void)format::header_length(bytes, size, path);  // throws: the file is too small
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return std::string(text.substr(format::kPrefixBytes, header_end - format::kPrefixBytes));
}

format::SafetensorsHeader header_in(const os::File& file, const std::optional<format::BlockRows>& blocks) {
  return os::about(file.path(), [&] {
    const FileText header = read_header_text(file, blocks);
    return format::parse_header(header.text, header.file_bytes, file.path().string());
  });
}

/// The headers of all data files.
void read_headers(Listing& listing) {
  const OpenCheckpoint& opened = listing.opened;
  const std::vector<format::StoredFile>& files = opened.stored.files;
  const std::size_t most_open = opened.blocks ? kFilesAhead : 1;
  std::deque<os::File> open;
  for (std::size_t i = 0; i < files.size(); ++i) {
    while (open.size() < std::min(files.size() - i, most_open)) {
      open.emplace_back(opened.path_of(files[i + open.size()].name), os::OpenMode::kRead);
      if (opened.blocks) os::read_ahead(open.back(), 0, opened.blocks->block_bytes());
    }
    listing.found.safetensors[files[i].name] = header_in(open.front(), opened.blocks);
    open.pop_front();
  }
}

/// Carried files that the manifest lists must exist and have the listed sizes; their contents are checked when read.
void check_carried(const OpenCheckpoint& checkpoint, Links links) {
  for (const auto& file : checkpoint.manifest->carried_files) {
    const fs::path path = checkpoint.path_of(file.name);
    const std::string shown = base::printable(path.string());
    if (!os::exists(path)) {
      throw Error(ErrorKind::kIntegrity, fmt::format("'{}' is missing; {} names it", shown, format::kManifestFile),
                  {0, path.native()});
    }
    // Links in the directory itself were checked before; a manifest may name a file in a folder that is a link.
    if (file.name.find('/') != std::string::npos) check_links(checkpoint.directory, std::vector{file.name}, links);
    const std::uint64_t size = os::file_size(path);
    if (size == file.size_bytes) continue;
    throw Error(ErrorKind::kIntegrity, fmt::format("'{}' has {} bytes, {} were written", shown, size, file.size_bytes),
                {0, path.native()});
  }
}

/// Manifest and directory must have the same data files, all in the block table, with equal sizes and checksums.
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

/// The checksum of each stored file, as from file_digest_in().
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

/// The manifest's content; empty if it cannot be read.
std::string manifest_text(const fs::path& path) {
  try {
    return fs::is_directory(path) && os::exists(path / format::kManifestFile)
               ? os::read_text(path / format::kManifestFile, limits::kManifestBytes)
               : "";
  } catch (const std::bad_alloc&) {
    throw;  // not a fault of the manifest
  } catch (const std::exception&) {
    return "";
  }
}

/// Whether the directory's manifest is missing or has a checksum other than `manifest_crc32c`.
bool has_other_manifest(const fs::path& directory, std::uint32_t manifest_crc32c) {
  const std::string text = manifest_text(directory);
  return text.empty() || format::crc32c(base::as_bytes(text)) != manifest_crc32c;
}

/// Reads manifest and block table from disk, if there is a manifest.
void read_texts(OpenCheckpoint& opened) {
  const fs::path& path = opened.directory;
  if (!os::exists(path / format::kManifestFile)) {
    root::refuse_lost_manifest(path);
    return;
  }
  const std::string manifest = os::read_text(path / format::kManifestFile, limits::kManifestBytes);
  if (!os::exists(path / format::kBlocksFile)) {
    const fs::path manifest_path = path / format::kManifestFile;
    (void)os::about(manifest_path, [&] { return format::parse_manifest(manifest, manifest_path.string()); });
    throw Error(ErrorKind::kIntegrity,
                fmt::format("'{}': {} is missing, and {} is there: nothing tells whether the bytes are those that were "
                            "saved; to read them all the same, move {} away",
                            os::shown(path), format::kBlocksFile, format::kManifestFile, format::kManifestFile),
                {0, (path / format::kBlocksFile).native()});
  }
  const os::File file(path / format::kBlocksFile, os::OpenMode::kRead);
  if (file.size_bytes() > limits::kBlockTableBytes) {
    throw Error(ErrorKind::kFormat,
                fmt::format("'{}' has {} bytes; at most {} are read", base::printable(file.path().string()),
                            file.size_bytes(), limits::kBlockTableBytes));
  }
  base::Bytes blocks(file.size_bytes());
  file.read_at(blocks, 0);
  attach_texts(opened, manifest, std::move(blocks));
}

/// Lists the directories, and reads their small files except headers. Reads indexes only with IndexTexts::kRead.
Listing list(const Parts& where, const Allowed& allowed, IndexTexts index_texts) {
  Listing listing = list_parts(where, allowed.links, index_texts);
  read_texts(listing.opened);
  if (listing.opened.manifest) interop::take_manifest(listing.found, *listing.opened.manifest);
  listing.found.access = access_to(where, allowed.links);
  listing.found.trusts_index = allowed.trusts_index;
  return listing;
}

OpenCheckpoint describe_checked(Listing listing, const Parts& where, Links links) {
  OpenCheckpoint opened = describe(std::move(listing), where);
  if (opened.manifest) check_files(opened, file_digests(opened), links);
  return opened;
}

OpenCheckpoint open_directories(const Parts& where, const Allowed& allowed) {
  Listing listing = list(where, allowed, IndexTexts::kRead);
  read_headers(listing);
  return describe_checked(std::move(listing), where, allowed.links);
}

OpenCheckpoint open_file(const fs::path& path) {
  refuse_single_file(path);
  Listing listing;
  listing.opened.directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  listing.found.path = path.parent_path().string();
  listing.found.alone = true;
  listing.found.safetensors[path.filename().string()] = header_alone(path);
  return describe(std::move(listing), path);
}

OpenCheckpoint open_once(const fs::path& path, const Allowed& allowed) {
  if (!os::exists(path)) throw root::does_not_exist(path);
  if (fs::is_directory(path)) return open_directories(path, allowed);
  return is_stage_name(path) || hdf5::looks_like_hdf5(path) ? open_stage(path) : open_file(path);
}

/// Opens a checkpoint; tries again if the checkpoint is replaced at the same time. If no whole checkpoint has the name,
/// for a moment or after a crash, opens the old checkpoint at its temporary place.
OpenCheckpoint open_one(const fs::path& given, const Allowed& allowed) {
  const fs::path name = given.has_filename() ? given : given.parent_path();
  fs::path path = name;
  for (int attempt = 1; attempt <= kOpenAttempts; ++attempt) {
    const std::string before = manifest_text(path);
    try {
      OpenCheckpoint opened = os::about(path, [&] { return open_once(path, allowed); });
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
        path = name;  // the old checkpoint is gone: the new one has the name
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

FileText read_header_text(const os::File& file, const std::optional<format::BlockRows>& blocks) {
  const fs::path& path = file.path();
  const std::uint64_t size = file.size_bytes();
  // If the table does not have the file, check_files() reports that later.
  const format::BlockRow* const row = blocks ? blocks_of(path, size, *blocks) : nullptr;
  if (row != nullptr) return {checked_header(file, *row, blocks->block_bytes()), size};
  std::vector<std::byte> prefix(std::min<std::uint64_t>(size, kLfsPrefixBytes));
  file.read_at(prefix, 0);
  std::string json(format::header_length(prefix, size, path.string()), '\0');
  file.read_at(std::as_writable_bytes(std::span(json)), format::kPrefixBytes);
  return {std::move(json), size};
}

format::SafetensorsHeader read_header(const fs::path& path) { return header_in({path, os::OpenMode::kRead}, {}); }

std::uint32_t file_digest_in(const std::optional<format::BlockRows>& blocks, std::string_view file) {
  if (!blocks) return 0;
  const auto row = std::ranges::find(blocks->files(), file, &format::BlockRow::name);
  return row == blocks->files().end() ? 0 : format::file_digest(row->unpacked(), blocks->block_bytes());
}

void check_files(const OpenCheckpoint& checkpoint, std::span<const std::uint32_t> digests, Links links) {
  check_against_manifest(checkpoint, digests);
  check_carried(checkpoint, links);
}

void attach_texts(OpenCheckpoint& checkpoint, const std::string& manifest, base::Bytes blocks) {
  const fs::path blocks_path = checkpoint.directory / format::kBlocksFile;
  const fs::path manifest_path = checkpoint.directory / format::kManifestFile;
  checkpoint.manifest_crc32c = format::crc32c(base::as_bytes(manifest));
  checkpoint.manifest =
      os::about(manifest_path, [&] { return format::parse_manifest(manifest, manifest_path.string()); });
  const std::uint32_t found = format::crc32c(blocks);
  if (found != checkpoint.manifest->blocks_crc32c) {
    throw Error(ErrorKind::kIntegrity,
                fmt::format("'{}' has checksum {:08x}, but {} names {:08x}: one of the two is damaged",
                            blocks_path.string(), found, format::kManifestFile, checkpoint.manifest->blocks_crc32c),
                {0, blocks_path.native()});
  }
  os::about(blocks_path, [&] { checkpoint.blocks.emplace(std::move(blocks), blocks_path.string()); });
}

OpenCheckpoint open_here(const Parts& where, const Allowed& allowed) {
  return where.is_one() ? open_one(where.paths.front(), allowed) : open_directories(where, allowed);
}

bool is_manifest_changed(comm::Communicator& communicator, const fs::path& directory, std::uint32_t manifest_crc32c) {
  std::uint64_t changed = 0;
  comm::agree_on_root(communicator, "look whether the checkpoint was replaced", 0,
                      [&] { changed = has_other_manifest(directory, manifest_crc32c) ? 1 : 0; });
  return communicator.max(changed) != 0;
}

bool was_replaced(comm::Communicator& communicator, const OpenCheckpoint& opened, const Error& error) {
  // All ranks have the same message, so all take the same branch. An error of MPI itself, which only some ranks have,
  // names no file.
  const std::string directory = os::shown(opened.directory);
  if (!opened.manifest || is_stage(opened)) return false;  // a staging file contains its manifest
  if (std::string_view(error.what()).find(directory) == std::string_view::npos) return false;
  return is_manifest_changed(communicator, opened.directory, opened.manifest_crc32c);
}

namespace {

FileText read_text_of(const OpenCheckpoint& opened, const std::string& name) {
  const fs::path path = opened.path_of(name);
  return interop::set_of_index(name) ? FileText{os::read_text(path, limits::kIndexBytes)}
                                     : read_header_text({path, os::OpenMode::kRead}, opened.blocks);
}

/// Opens a directory with all ranks: sends the messages between the steps of open_steps.hpp.
///
/// Only lack of memory is an error here: any other error on any rank ends the attempt on all ranks. Rank 0 then opens
/// the directory alone with open_here(), which reports the error, or opens a checkpoint that is being replaced. So
/// errors are the same, in the same order, for any number of ranks.
class Group {
 public:
  Group(comm::Communicator& communicator, const Parts& where, const Allowed& allowed)
      : communicator_(communicator), where_(where), allowed_(allowed) {
    share_.rank = communicator.rank();
    share_.ranks = communicator.size();
  }

  /// Collective.
  OpenCheckpoint open() {
    if (auto opened = open_by_stretches()) return std::move(*opened);
    OpenCheckpoint opened;
    open_on_root(communicator_, opened, [&] {
      auto described = describe_gathered();
      opened = described ? std::move(*described) : open_here(where_, allowed_);
    });
    return opened;
  }

 private:
  /// Collective: the checkpoint, if its dialect can locate all tensors from summaries. Otherwise nothing on all ranks;
  /// rank 0 then has all headers and indexes, unless there was an error.
  std::optional<OpenCheckpoint> open_by_stretches() {
    base::Bytes bytes;
    base::Bytes blocks;
    const bool is_root = communicator_.rank() == 0;
    if (is_root) attempt([&] { bytes = list_on_root(blocks); });
    if (!shared(bytes)) return std::nullopt;
    communicator_.share(blocks, 0);
    attempt([&] {
      listing_ = take_announced(bytes, std::move(blocks));
      bytes = read_share(listing_, read_text_of, share_);
    });
    if (!all_well()) return std::nullopt;
    const comm::Messages summaries = communicator_.gather(bytes, 0);
    bytes.clear();
    if (is_root) attempt([&] { bytes = judge_on_root(summaries); });
    if (!shared(bytes)) {
      gather_texts();
      return std::nullopt;
    }
    attempt([&] {
      share_.texts.clear();
      take_judged(bytes, listing_);
      bytes = place(listing_, share_);
    });
    if (!all_well()) return std::nullopt;
    comm::Messages messages = communicator_.all_gather(bytes);
    attempt([&] { messages = spread(share_, messages); });
    if (!all_well()) return std::nullopt;
    messages = communicator_.all_to_all(std::move(messages));
    attempt([&] {
      auto run = plan::merge_runs(messages);
      is_well_ = run.has_value();
      if (run) bytes = std::move(*run);
    });
    if (!all_well()) return std::nullopt;
    messages = communicator_.all_gather(bytes);
    attempt([&] {
      listing_.opened.stored.tensors = plan::StoredTensors(plan::PackedCatalog(messages));
      warn_of_tensors(listing_.opened);
    });
    if (!all_well()) return std::nullopt;
    return std::move(listing_.opened);
  }

  template <class Work>
  void attempt(const Work& work) {
    try {
      work();
    } catch (const std::bad_alloc&) {
      is_well_ = false;
      is_out_of_memory_ = true;
    } catch (const std::exception&) {
      is_well_ = false;
    }
  }

  /// Collective: whether all ranks are well. Throws if one ran out of memory, since rank 0 alone would need more.
  bool all_well() {
    const bool all = communicator_.max(is_well_ ? 0 : 1) == 0;
    if (!all) {
      comm::agree(communicator_, "open the checkpoint", [&] {
        if (is_out_of_memory_) throw std::bad_alloc();
      });
    }
    return all;
  }

  /// Collective: shares rank 0's bytes; false on all ranks if it has none.
  bool shared(base::Bytes& bytes) {
    if (!is_well_) bytes.clear();
    communicator_.share(bytes, 0);
    if (bytes.empty()) static_cast<void>(all_well());
    return !bytes.empty();
  }

  /// Rank 0: the list of files to read, and the block table.
  base::Bytes list_on_root(base::Bytes& blocks) {
    Parts where = where_;
    if (where.is_one()) {
      fs::path& path = where.paths.front();
      if (!path.has_filename()) path = path.parent_path();
      if (!fs::is_directory(path)) return {};
    }
    on_root_ = list(where, allowed_, IndexTexts::kLeave);
    if (on_root_.opened.blocks) blocks = on_root_.opened.blocks->bytes();
    return announce(on_root_);
  }

  /// Rank 0: sections, metadata and warnings, for all ranks. Empty if rank 0 must have all headers.
  base::Bytes judge_on_root(const comm::Messages& summaries) {
    const auto outline = judge(on_root_, summaries);
    if (!outline) return {};
    if (on_root_.opened.manifest) check_files(on_root_.opened, on_root_.digests, allowed_.links);
    is_well_ = !is_replaced();
    const base::Bytes judged = encode_judged(on_root_, *outline);
    on_root_ = {};
    return judged;
  }

  /// Rank 0: whether the checkpoint was replaced since it was listed.
  [[nodiscard]] bool is_replaced() const {
    const OpenCheckpoint& opened = on_root_.opened;
    return opened.manifest ? has_other_manifest(opened.directory, opened.manifest_crc32c)
                           : !manifest_text(opened.directory).empty();
  }

  /// Collective.
  void gather_texts() {
    base::Bytes bytes;
    attempt([&] {
      bytes = encode_texts(share_.texts);
      share_ = {};
    });
    if (all_well()) texts_ = communicator_.gather(bytes, 0);
  }

  /// Rank 0: describes the checkpoint from the files that all ranks have read. Nothing if open_here() must do it.
  std::optional<OpenCheckpoint> describe_gathered() {
    if (texts_.empty() || is_replaced()) return std::nullopt;
    try {
      take_texts(std::move(texts_), on_root_.found);
      return describe_checked(std::move(on_root_), where_, allowed_.links);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  comm::Communicator& communicator_;
  const Parts& where_;
  Allowed allowed_;
  bool is_well_ = true;
  bool is_out_of_memory_ = false;
  Listing listing_;
  HeaderShare share_;
  // On rank 0 only:
  Listing on_root_;  ///< with the whole manifest
  comm::Messages texts_;
};

}  // namespace

void open_on_root(comm::Communicator& communicator, OpenCheckpoint& opened, comm::Work open) {
  base::Bytes bytes;
  comm::agree_on_root(communicator, "open checkpoint", 0, [&] {
    open();
    bytes = encode_open(opened);
  });
  communicator.share(bytes, 0);
  comm::agree(communicator, "open checkpoint", [&] { opened = decode_open(bytes); });
}

OpenCheckpoint open_checkpoint(comm::Communicator& communicator, const Parts& where, const Allowed& allowed) {
  if (where.sight == Sight::kEachRank) return open_by_rank(communicator, where, allowed);
  root::LoadMark mark;  // made before anything is opened
  if (communicator.rank() == 0 && where.is_one()) mark = root::LoadMark(where.paths.front());
  OpenCheckpoint opened;
  if (communicator.size() > 1) {
    opened = Group(communicator, where, allowed).open();
  } else {
    open_on_root(communicator, opened, [&] { opened = open_here(where, allowed); });
  }
  opened.mark = std::move(mark);
  return opened;
}

}  // namespace cairn::opening
