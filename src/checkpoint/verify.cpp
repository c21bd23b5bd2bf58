#include "checkpoint/verify.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "base/aligned_buffer.hpp"
#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/named_digests.hpp"
#include "checkpoint/progress.hpp"
#include "checkpoint/read_back.hpp"
#include "comm/agree.hpp"
#include "format/crc32c.hpp"
#include "format/limits.hpp"
#include "interop/aliases.hpp"
#include "interop/empty_weights.hpp"
#include "io/whole_files.hpp"
#include "opening/carried.hpp"
#include "opening/written_blocks.hpp"
#include "os/file.hpp"
#include "plan/extents.hpp"
#include "root/root.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Findings of rank 0 before tensor data is read.
struct Found {
  std::optional<format::Manifest> manifest;
  std::optional<std::uint32_t> manifest_crc32c;  ///< checksum of the text of `manifest`
  base::Bytes blocks;                            ///< encoded table; empty: there is no valid one
  std::uint64_t files = 0;
  std::uint64_t tensors = 0;
  std::string dialect;
  std::vector<std::string> sections;
  std::optional<std::uint64_t> step;
  std::vector<NamedFile> named;  ///< files with a digest as their name
  std::vector<std::string> warnings;
  std::vector<Fault> faults;
};

void add_fault(Found& found, const std::string& file, const std::string& message) {
  Fault fault;
  fault.file = file;
  fault.message = message;
  found.faults.push_back(std::move(fault));
}

/// `reader`: null for a file whose blocks are checked anyway.
void check_listed_file(const fs::path& directory, const format::ManifestFile& file, io::DiskReader* reader,
                       Found& found) {
  const fs::path path = directory / file.name;
  const std::string shown = base::printable(path.string());
  if (!os::exists(path))
    return add_fault(found, file.name, fmt::format("'{}' is missing; {} names it", shown, format::kManifestFile));
  const std::uint64_t size = os::file_size(path);
  if (size != file.size_bytes) {
    return add_fault(found, file.name, fmt::format("'{}' has {} bytes, {} were written", shown, size, file.size_bytes));
  }
  if (reader == nullptr) return;
  const std::uint32_t crc = io::crc32c_from_disk(*reader, path, size);
  if (crc != file.crc32c) {
    add_fault(
        found, file.name,
        fmt::format("'{}' {}: the file was damaged or changed since", shown, format::mismatch_words(crc, file.crc32c)));
  }
}

/// Reads the manifest and the block table, and checks the files that the manifest lists. Damage is added as a fault.
void read_own_files(const fs::path& directory, io::DiskReader& reader, Found& found) {
  const fs::path manifest_path = directory / format::kManifestFile;
  const fs::path blocks_path = directory / format::kBlocksFile;
  try {
    root::refuse_lost_manifest(directory);
    const std::string text = io::read_text_from_disk(reader, manifest_path, format::limits::kManifestBytes);
    found.manifest = format::parse_manifest(text, manifest_path.string());
    found.manifest_crc32c = format::crc32c(base::as_bytes(text));
  } catch (const Error& error) {
    return add_fault(found, format::kManifestFile, error.what());
  }
  for (const auto& file : found.manifest->carried_files) check_listed_file(directory, file, &reader, found);
  for (const auto& file : found.manifest->data_files) check_listed_file(directory, file, nullptr, found);
  try {
    const std::string text = io::read_text_from_disk(reader, blocks_path, format::limits::kBlockTableBytes);
    const std::uint32_t crc = format::crc32c(base::as_bytes(text));
    if (crc != found.manifest->blocks_crc32c) {
      return add_fault(found, format::kBlocksFile,
                       fmt::format("'{}' has checksum {:08x}, {} names {:08x}", base::printable(blocks_path.string()),
                                   crc, format::kManifestFile, found.manifest->blocks_crc32c));
    }
    format::decode_blocks(base::as_bytes(text), blocks_path.string());
    found.blocks.assign(base::as_bytes(text).begin(), base::as_bytes(text).end());
  } catch (const Error& error) {
    add_fault(found, format::kBlocksFile, error.what());
  }
}

/// The directory of a checkpoint, or of the single file that is one.
fs::path directory_of(const fs::path& path) {
  if (fs::is_directory(path)) return path;
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// Names of all files at the path, those in folders as far as `opened` reads them.
std::vector<std::string> names_at(const fs::path& path, const opening::OpenCheckpoint& opened) {
  if (!fs::is_directory(path)) return {path.filename().string()};
  std::vector<std::string> names;
  for (const os::DirectoryEntry& entry : os::list_directory(path)) {
    if (entry.is_regular) names.push_back(entry.name);
  }
  for (const format::StoredFile& file : opened.stored.files) {
    if (file.name.find('/') != std::string::npos) names.push_back(file.name);
  }
  return names;
}

void describe(const opening::OpenCheckpoint& opened, Found& found) {
  found.files = opened.stored.files.size();
  found.tensors = opened.stored.tensors.size();
  found.dialect = opened.about.dialect;
  for (auto cursor = opened.stored.tensors.cursor(); cursor.next();) {
    if (found.sections.empty() || found.sections.back() != cursor.section()) {
      found.sections.emplace_back(cursor.section());
    }
  }
  found.step = opened.about.step;
  if (opened.manifest) {
    found.step.reset();
    if (opened.manifest->has_step) found.step = opened.manifest->step;
  }
  found.warnings = opened.warnings;
}

/// Moves warnings of tensors that no loader can fill to the faults: aliases of what is not stored, and weights without
/// elements.
void check_tensors(const opening::OpenCheckpoint& opened, Found& found) {
  for (std::string& words : interop::aliases_of(opened.metadata, opened.stored.tensors).dangling) {
    std::erase(found.warnings, words);
    add_fault(found, "", words);
  }
  if (opened.manifest) return;
  if (opened.stored.tensors.size() == 0) {
    add_fault(found, "", fmt::format("'{}' has no tensors: its files hold nothing", os::shown(opened.directory)));
  }
  interop::EmptyWeights empty = interop::empty_weights(opened.stored.tensors);
  if (empty.names.empty()) return;
  std::erase(found.warnings, empty.words);
  Fault& fault = found.faults.emplace_back();
  fault.tensors = std::move(empty.names);
  fault.message = std::move(empty.words);
}

Found look(const fs::path& path, const opening::Allowed& allowed, io::DiskReader& reader) {
  Found found;
  if (!os::exists(path)) throw root::does_not_exist(path);
  if (fs::is_directory(path)) {
    opening::check_links(path, os::list_directory(path), allowed.links);
  } else if (!opening::is_stage_name(path)) {
    opening::refuse_single_file(path);
  }
  if (fs::is_directory(path) && (os::exists(path / format::kManifestFile) || os::exists(path / format::kBlocksFile))) {
    read_own_files(path, reader, found);
  }
  opening::OpenCheckpoint opened;
  try {
    opened = opening::open_here(path, allowed);
    describe(opened, found);
    check_tensors(opened, found);
    std::string words = opened.manifest ? root::words_of_other_step(path, *opened.manifest) : "";
    if (!words.empty()) found.warnings.push_back(std::move(words));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kNotFound && !found.manifest && found.faults.empty()) throw;
    // A fault found above (a missing or truncated file) also makes the structure invalid, which is not a second fault.
    if (found.faults.empty()) add_fault(found, "", error.what());
  }
  if (found.blocks.empty()) found.named = named_files(directory_of(path), names_at(path, opened));
  return found;
}

void put_faults(base::ByteWriter& out, const std::vector<Fault>& faults) {
  out.u64(faults.size());
  for (const Fault& fault : faults) {
    out.text(fault.file);
    out.u64(fault.tensors.size());
    for (const std::string& tensor : fault.tensors) out.text(tensor);
    out.u64(fault.block);
    out.u64(fault.has_block ? 1 : 0);
    out.text(fault.message);
  }
}

std::vector<Fault> get_faults(base::ByteReader& in) {
  std::vector<Fault> faults;
  for (std::uint64_t left = in.u64(); left > 0; --left) {
    Fault fault;
    fault.file = in.text();
    for (std::uint64_t names = in.u64(); names > 0; --names) fault.tensors.push_back(in.text());
    fault.block = in.u64();
    fault.has_block = in.u64() != 0;
    fault.message = in.text();
    faults.push_back(std::move(fault));
  }
  return faults;
}

/// The files that have no fault so far: only blocks of these are checked.
std::vector<bool> checkable(const format::BlockTable& table, const std::vector<Fault>& faults) {
  std::vector<bool> checkable;
  for (const format::FileBlocks& file : table.files) {
    const auto names_it = [&](const Fault& fault) { return fault.file == file.name; };
    checkable.push_back(std::none_of(faults.begin(), faults.end(), names_it));
  }
  return checkable;
}

/// A part of the data files, of at least `bytes`, as far as there are so many.
struct Slice {
  std::vector<plan::FileRange> ranges;  ///< whole blocks of files that are checked
  std::uint64_t end_bytes = 0;          ///< counted over all files
};

/// The slice that begins so many bytes after the beginning of the first file, at the end of a block.
Slice slice_from(const format::BlockTable& table, const std::vector<bool>& checkable, std::uint64_t begin_bytes,
                 std::uint64_t bytes) {
  Slice slice;
  std::uint64_t at = 0;  // where the file begins
  const std::uint64_t wanted_end = base::add(begin_bytes, bytes, "position");
  for (std::uint32_t i = 0; i < table.files.size() && at < wanted_end; ++i) {
    const std::uint64_t size = table.files[i].size_bytes;
    const std::uint64_t begin = begin_bytes <= at ? 0 : std::min(begin_bytes - at, size);
    const std::uint64_t end = std::min(base::round_up(std::min(wanted_end - at, size), table.block_bytes), size);
    if (begin < end && checkable[i]) slice.ranges.push_back({i, begin, end});
    slice.end_bytes = at + end;
    at += size;
  }
  return slice;
}

std::vector<Fault> faults_of(const BlockChecker& checker, const fs::path& directory) {
  std::vector<Fault> faults;
  for (const opening::BlockFault& found : checker.faults) {
    Fault fault;
    fault.file = found.path.lexically_relative(directory).string();
    fault.tensors = found.tensors;
    fault.block = found.block;
    fault.has_block = true;
    fault.message = opening::message_of(found);
    faults.push_back(std::move(fault));
  }
  return faults;
}

/// Collective: whether rank 0 says so.
bool may_go_on(comm::Communicator& communicator, const VerifyPart& part) {
  std::uint64_t answer[] = {1};
  comm::agree_on_root(communicator, "verify", 0, [&] { answer[0] = part.may_go_on() ? 1 : 0; });
  communicator.broadcast(std::as_writable_bytes(std::span(answer)), 0);
  return answer[0] != 0;
}

/// Collective: checks the blocks of the files without a fault so far, from `begin_bytes` on and as long as the part
/// says, and adds all ranks' faults in file order.
void check_blocks(comm::Communicator& communicator, BlockChecker& checker, const format::BlockTable& table,
                  const fs::path& directory, const VerifyPart& part, VerifyResult& result) {
  std::uint64_t all = 0;
  for (const format::FileBlocks& file : table.files) all = base::add(all, file.size_bytes, "size of the data files");
  const auto ranks = static_cast<std::uint64_t>(communicator.size());
  const std::vector<bool> checked_files = checkable(table, result.faults);
  const std::uint64_t first = result.manifest_crc32c == part.manifest_crc32c ? std::min(part.begin_bytes, all) : 0;
  std::uint64_t at = first;
  while (at < all) {
    if (at != first && !may_go_on(communicator, part)) {
      result.position_bytes = at;
      break;
    }
    comm::agree(communicator, "verify", [&] {
      const std::uint64_t bytes = part.may_go_on ? part.slice_bytes * ranks : all - at;
      Slice slice = slice_from(table, checked_files, at, bytes);
      at = slice.end_bytes;
      const plan::ExtentMap extents(std::move(slice.ranges), communicator.size(), table.block_bytes);
      const std::vector<plan::Extent> mine = extents.of(communicator.rank());
      checker.check(mine, [&](std::uint64_t done, std::uint64_t mine_in_all) {
        report_progress("verifying", done, part.may_go_on ? (all - first) / ranks : mine_in_all);
      });
    });
  }
  base::ByteWriter mine;
  put_faults(mine, faults_of(checker, directory));
  for (const base::Bytes& bytes : communicator.all_gather(mine.bytes())) {
    base::ByteReader reader(bytes);
    const auto faults = get_faults(reader);
    result.faults.insert(result.faults.end(), faults.begin(), faults.end());
  }
  result.bytes = communicator.sum(checker.bytes);
  result.blocks = communicator.sum(checker.blocks);
}

/// Collective: as check_all_blocks(), for the files with a digest as their name. `path`: as given to verify().
void check_named_files(comm::Communicator& communicator, std::span<const NamedFile> files, const fs::path& path,
                       io::DiskReader& reader, Call& call, VerifyResult& result) {
  base::ByteWriter mine;
  comm::agree(communicator, "verify", [&] {
    const auto ranks = static_cast<std::uint64_t>(communicator.size());
    const auto numbers = files_of_rank(files, ranks, static_cast<std::uint64_t>(communicator.rank()));
    std::uint64_t all = 0;
    std::uint64_t done = 0;
    for (const std::uint32_t number : numbers) all += files[number].size_bytes;
    std::vector<Fault> faults;
    const auto seen = [&](std::uint64_t bytes) {
      call.add_bytes(bytes);
      done += bytes;
      report_progress("verifying", done, all);
    };
    for (WrongDigest& wrong : check_digests(directory_of(path), files, numbers, reader, seen)) {
      Fault& fault = faults.emplace_back();
      fault.file = std::move(wrong.name);
      fault.message = std::move(wrong.message);
    }
    put_faults(mine, faults);
  });
  std::vector<Fault> found;
  for (const base::Bytes& bytes : communicator.all_gather(mine.bytes())) {
    base::ByteReader in(bytes);
    for (Fault& fault : get_faults(in)) found.push_back(std::move(fault));
  }
  std::ranges::stable_sort(found, {}, &Fault::file);
  result.faults.insert(result.faults.end(), found.begin(), found.end());
  for (const NamedFile& file : files) {
    ++(file.is_sha256() ? result.sha256_files : result.git_files);
    result.named_bytes += file.size_bytes;
  }
}

/// Collective.
void add_cached(comm::Communicator& communicator, const io::DiskReader& reader, VerifyResult& result) {
  result.cached_bytes = communicator.sum(reader.cached_bytes());
  const auto first = communicator.lowest_rank_where(reader.cached_bytes() != 0);
  if (!first) return;
  result.why_cached = reader.why_cached();
  communicator.share(result.why_cached, *first);
}

struct Verified {
  VerifyResult result;
  std::optional<std::uint32_t> manifest_crc32c;  ///< checksum when verification began; empty: no valid manifest
};

Verified verify_once(comm::Communicator& communicator, const fs::path& path, const opening::Allowed& allowed,
                     const VerifyPart& part) {
  Call call(communicator);
  call.begin("open");
  base::Bytes shared;
  base::AlignedBuffer memory;
  std::optional<io::DiskReader> reader;
  const auto ranks_of_node = static_cast<std::uint64_t>(communicator.node()->size());
  comm::agree(communicator, "make buffers", [&] {
    memory = base::AlignedBuffer(disk_reader_bytes(ranks_of_node));
    reader.emplace(memory.span());
  });
  root::LoadMark mark;
  comm::agree_on_root(communicator, "verify", 0, [&] {
    mark = root::LoadMark(path);
    const Found found = look(path, allowed, *reader);
    base::ByteWriter out;
    put_faults(out, found.faults);
    out.u64(found.manifest ? 1 : 0);
    out.u64(found.manifest_crc32c.value_or(0));
    out.u64(found.files);
    out.u64(found.tensors);
    out.u64(found.warnings.size());
    for (const std::string& warning : found.warnings) out.text(warning);
    out.blob(found.blocks);
    put_named_files(out, found.named);
    out.text(found.dialect);
    out.u64(found.step ? 1 : 0);
    out.u64(found.step.value_or(0));
    for (const std::string& section : found.sections) out.text(section);
    shared = out.take();
  });
  communicator.share(shared, 0);
  base::ByteReader in(shared);
  Verified verified;
  VerifyResult& result = verified.result;
  result.faults = get_faults(in);
  result.has_checksums = in.u64() != 0;
  const auto manifest_crc32c = static_cast<std::uint32_t>(in.u64());
  if (result.has_checksums) verified.manifest_crc32c = result.manifest_crc32c = manifest_crc32c;
  result.files = in.u64();
  result.tensors = in.u64();
  for (std::uint64_t left = in.u64(); left > 0; --left) result.warnings.push_back(in.text());
  const base::Bytes encoded = in.blob();
  const std::vector<NamedFile> named = get_named_files(in);
  result.dialect = in.text();
  const bool has_step = in.u64() != 0;
  const std::uint64_t step = in.u64();
  if (has_step) result.step = step;
  while (!in.done()) result.sections.push_back(in.text());
  call.begin("read");
  call.begin("verify");
  call.stop();
  if (!encoded.empty()) {
    const format::BlockTable table = format::decode_blocks(encoded, (path / format::kBlocksFile).string());
    BlockChecker checker(path, table, *reader, call.clock());
    check_blocks(communicator, checker, table, path, part, result);
    call.stop();
  }
  if (!named.empty()) {
    call.begin("verify");
    check_named_files(communicator, named, path, *reader, call, result);
    call.stop();
  }
  add_cached(communicator, *reader, result);
  result.phases = call.clock().reduce(communicator);
  result.seconds = call.clock().slowest_seconds(communicator);
  return verified;
}

}  // namespace

VerifyResult verify(comm::Communicator& communicator, const fs::path& given, const opening::Allowed& allowed,
                    const VerifyPart& part) {
  const fs::path path = given.has_filename() ? given : given.parent_path();
  for (int attempt = 1;; ++attempt) {
    Verified verified = verify_once(communicator, path, allowed, part);
    if (verified.result.faults.empty() || !verified.manifest_crc32c || attempt == opening::kLoadAttempts)
      return verified.result;
    // Starts over if another checkpoint has taken the place of this one, since the faults may not concern the new
    // checkpoint.
    if (!opening::is_manifest_changed(communicator, path, *verified.manifest_crc32c)) return verified.result;
  }
}

}  // namespace cairn::checkpoint
