#include "checkpoint/verify.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "base/aligned_buffer.hpp"
#include "base/bytes.hpp"
#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/progress.hpp"
#include "checkpoint/root.hpp"
#include "checkpoint/watched_call.hpp"
#include "checkpoint/window_io.hpp"
#include "comm/agree.hpp"
#include "format/crc32c.hpp"
#include "os/file.hpp"
#include "plan/extents.hpp"

namespace cairn::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxJsonBytes = 256ULL << 20;
constexpr std::uint64_t kReadBytes = 16ULL << 20;

/// What rank 0 finds without reading tensor data.
struct Found {
  std::optional<format::Manifest> manifest;
  std::optional<std::uint32_t> manifest_crc32c;  ///< of the text of `manifest`
  base::Bytes blocks;                            ///< encoded table; empty when there is none to check against
  std::uint64_t files = 0;
  std::uint64_t tensors = 0;
  std::vector<std::string> warnings;
  std::vector<Fault> faults;
};

void add_fault(Found& found, const std::string& file, const std::string& message) {
  Fault fault;
  fault.file = file;
  fault.message = message;
  found.faults.push_back(std::move(fault));
}

void check_listed_file(const fs::path& directory, const format::ManifestFile& file, bool read_it, Found& found) {
  const fs::path path = directory / file.name;
  const std::string shown = base::printable(path.string());
  if (!os::exists(path))
    return add_fault(found, file.name, fmt::format("'{}' is missing; {} names it", shown, kManifestFile));
  const std::uint64_t size = os::file_size(path);
  if (size != file.size_bytes) {
    return add_fault(found, file.name, fmt::format("'{}' has {} bytes, {} were written", shown, size, file.size_bytes));
  }
  if (!read_it) return;
  const os::File opened(path, os::OpenMode::kRead);
  format::RunningCrc32c running;
  base::Bytes piece;
  for (std::uint64_t at = 0; at < size; at += piece.size()) {
    piece.resize(std::min(kReadBytes, size - at));
    opened.read_at(piece, at);
    running.add(piece);
  }
  const std::uint32_t crc = running.value();
  if (crc != file.crc32c) {
    add_fault(found, file.name,
              fmt::format("'{}' has checksum {:08x}, {:08x} was written: the file was damaged or changed since", shown,
                          crc, file.crc32c));
  }
}

/// Manifest and block table, each of whose damages is a fault and not an exception.
void read_own_files(const fs::path& directory, Found& found) {
  const fs::path manifest_path = directory / kManifestFile;
  const fs::path blocks_path = directory / kBlocksFile;
  try {
    const std::string text = os::read_text(manifest_path, kMaxJsonBytes);
    found.manifest = format::parse_manifest(text, manifest_path.string());
    found.manifest_crc32c = format::crc32c(base::as_bytes(text));
  } catch (const Error& error) {
    return add_fault(found, kManifestFile, error.what());
  }
  for (const auto& file : found.manifest->carried_files) check_listed_file(directory, file, true, found);
  for (const auto& file : found.manifest->data_files) check_listed_file(directory, file, false, found);
  try {
    const std::string text = os::read_text(blocks_path, kMaxJsonBytes);
    const std::uint32_t crc = format::crc32c(base::as_bytes(text));
    if (crc != found.manifest->blocks_crc32c) {
      return add_fault(found, kBlocksFile,
                       fmt::format("'{}' has checksum {:08x}, {} names {:08x}", base::printable(blocks_path.string()),
                                   crc, kManifestFile, found.manifest->blocks_crc32c));
    }
    format::decode_blocks(base::as_bytes(text), blocks_path.string());
    found.blocks.assign(base::as_bytes(text).begin(), base::as_bytes(text).end());
  } catch (const Error& error) {
    add_fault(found, kBlocksFile, error.what());
  }
}

Found look(const fs::path& path, Links links) {
  Found found;
  if (!os::exists(path))
    throw Error(ErrorKind::kNotFound, fmt::format("'{}' does not exist", base::printable(path.string())));
  if (fs::is_directory(path)) check_links(path, os::list_directory(path), links);
  if (fs::is_directory(path) && os::exists(path / kManifestFile)) read_own_files(path, found);
  try {
    const OpenCheckpoint opened = open_here(path, links);
    found.files = opened.stored.files.size();
    found.tensors = opened.stored.tensors.size();
    found.warnings = opened.warnings;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kNotFound && !found.manifest && found.faults.empty()) throw;
    // What was named above (a missing or cut file) makes the structure fail too; that is no second fault.
    if (found.faults.empty()) add_fault(found, "", error.what());
  }
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

/// Rank-local: reads this rank's extents and compares every block with the table. Needs no sound header; the names of
/// tensors are looked up when a block is faulty.
class BlockChecker {
 public:
  BlockChecker(fs::path directory, const format::BlockTable& table, PhaseClock& clock)
      : directory_(std::move(directory)), table_(table), clock_(clock) {}

  /// `mine`: bytes of all extents of this rank, for the progress line.
  void check(const plan::Extent& extent, std::uint64_t mine) {
    const std::uint64_t block_bytes = table_.block_bytes;
    if (buffer_.size() == 0)
      buffer_ = base::AlignedBuffer(std::max(block_bytes, kReadBytes / block_bytes * block_bytes));
    const os::File file(directory_ / table_.files[extent.file].name, os::OpenMode::kRead);
    for (std::uint64_t at = extent.begin; at < extent.end;) {
      const std::uint64_t end = std::min(at + buffer_.size(), extent.end);
      const auto data = buffer_.span().first(end - at);
      report_progress("verifying", bytes, mine);
      clock_.begin("read");
      file.read_at(data, at);
      clock_.add_bytes(data.size());
      clock_.begin("verify");
      check_blocks(extent.file, at, data);
      clock_.add_bytes(data.size());
      at = end;
    }
  }

  std::vector<Fault> faults;
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;

 private:
  void check_blocks(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data) {
    for (std::uint64_t at = 0; at < data.size();) {
      const std::uint64_t block = (offset + at) / table_.block_bytes;
      const std::uint64_t end = std::min<std::uint64_t>(at + table_.block_bytes, data.size());
      const std::uint32_t crc = format::crc32c(data.subspan(at, end - at));
      if (crc != table_.files[file].crcs.at(block)) add_fault_at(file, {offset + at, offset + end}, crc);
      ++blocks;
      bytes += end - at;
      at = end;
    }
  }

  void add_fault_at(std::uint32_t file, plan::ByteRange range, std::uint32_t crc) {
    const format::FileBlocks& row = table_.files[file];
    const std::uint64_t block = range.begin / table_.block_bytes;
    BlockFault found{directory_ / row.name, block, range, crc, row.crcs[block], {}};
    try {
      found.tensors = tensors_in(read_header(found.path), range);
    } catch (const Error&) {
      // The header itself is damaged: its block is another fault, and nobody knows the names.
    }
    Fault fault;
    fault.file = row.name;
    fault.tensors = found.tensors;
    fault.block = block;
    fault.has_block = true;
    fault.message = message_of(found);
    faults.push_back(std::move(fault));
  }

  fs::path directory_;
  const format::BlockTable& table_;
  PhaseClock& clock_;
  base::AlignedBuffer buffer_;
};

/// Files that are there with their size; the others are faults already.
std::vector<plan::FileRange> checkable(const format::BlockTable& table, const std::vector<Fault>& faults) {
  std::vector<plan::FileRange> ranges;
  for (std::uint32_t i = 0; i < table.files.size(); ++i) {
    const auto named = [&](const Fault& fault) { return fault.file == table.files[i].name; };
    if (table.files[i].size_bytes == 0 || std::any_of(faults.begin(), faults.end(), named)) continue;
    ranges.push_back({i, 0, table.files[i].size_bytes});
  }
  return ranges;
}

/// Collective: every block of the table, and the faults of all ranks in file order.
void check_all_blocks(comm::Communicator& communicator, BlockChecker& checker, const format::BlockTable& table,
                      VerifyResult& result) {
  comm::agree(communicator, "verify", [&] {
    const plan::ExtentMap extents(checkable(table, result.faults), communicator.size(), table.block_bytes);
    const std::vector<plan::Extent> mine = extents.of(communicator.rank());
    std::uint64_t bytes = 0;
    for (const plan::Extent& extent : mine) bytes += extent.end - extent.begin;
    for (const plan::Extent& extent : mine) checker.check(extent, bytes);
  });
  base::ByteWriter mine;
  put_faults(mine, checker.faults);
  for (const base::Bytes& bytes : communicator.all_gather(mine.bytes())) {
    base::ByteReader reader(bytes);
    const auto faults = get_faults(reader);
    result.faults.insert(result.faults.end(), faults.begin(), faults.end());
  }
  result.bytes = communicator.sum(checker.bytes);
  result.blocks = communicator.sum(checker.blocks);
}

}  // namespace

namespace {

struct Verified {
  VerifyResult result;
  std::optional<std::uint32_t> manifest_crc32c;  ///< as it was found first, when there is one
};

Verified verify_once(comm::Communicator& communicator, const fs::path& path, Links links) {
  PhaseClock clock;
  const WatchedCall watched(communicator, clock);
  clock.begin("open");
  base::Bytes shared;
  comm::agree_on_root(communicator, "verify", 0, [&] {
    const Found found = look(path, links);
    base::ByteWriter out;
    put_faults(out, found.faults);
    out.u64(found.manifest ? 1 : 0);
    out.u64(found.manifest_crc32c.value_or(0));
    out.u64(found.files);
    out.u64(found.tensors);
    out.u64(found.warnings.size());
    for (const std::string& warning : found.warnings) out.text(warning);
    out.blob(found.blocks);
    shared = out.take();
  });
  communicator.share(shared, 0);
  base::ByteReader in(shared);
  Verified verified;
  VerifyResult& result = verified.result;
  result.faults = get_faults(in);
  result.has_checksums = in.u64() != 0;
  const auto manifest_crc32c = static_cast<std::uint32_t>(in.u64());
  if (result.has_checksums) verified.manifest_crc32c = manifest_crc32c;
  result.files = in.u64();
  result.tensors = in.u64();
  for (std::uint64_t left = in.u64(); left > 0; --left) result.warnings.push_back(in.text());
  const base::Bytes encoded = in.blob();
  clock.begin("read");
  clock.begin("verify");
  clock.stop();
  if (!encoded.empty()) {
    const format::BlockTable table = format::decode_blocks(encoded, (path / kBlocksFile).string());
    BlockChecker checker(path, table, clock);
    check_all_blocks(communicator, checker, table, result);
    clock.stop();
  }
  result.phases = clock.reduce(communicator);
  result.seconds = clock.slowest_seconds(communicator);
  return verified;
}

}  // namespace

VerifyResult verify(comm::Communicator& communicator, const fs::path& given, Links links) {
  const fs::path path = given.has_filename() ? given : given.parent_path();
  for (int attempt = 1;; ++attempt) {
    Verified verified = verify_once(communicator, path, links);
    if (verified.result.faults.empty() || !verified.manifest_crc32c || attempt == kLoadAttempts) return verified.result;
    // What is no fault of a checkpoint that has taken its place meanwhile.
    if (!is_manifest_changed(communicator, path, *verified.manifest_crc32c)) return verified.result;
  }
}

}  // namespace cairn::checkpoint
