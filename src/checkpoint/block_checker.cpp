#include "checkpoint/block_checker.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "directory/open.hpp"
#include "format/crc32c.hpp"
#include "os/file.hpp"

namespace cairn::checkpoint {
namespace {

constexpr std::uint64_t kBytesOfNode = 128ULL << 20;
constexpr std::uint64_t kLeastBytes = 4ULL << 20;

}  // namespace

std::uint64_t disk_reader_bytes(std::uint64_t ranks_of_node) {
  return std::clamp<std::uint64_t>(kBytesOfNode / ranks_of_node, kLeastBytes, io::DiskReader::kMostBytes);
}

BlockChecker::BlockChecker(std::filesystem::path directory, const format::BlockTable& table, io::DiskReader& reader,
                           PhaseClock& clock)
    : directory_(std::move(directory)), table_(table), reader_(reader), clock_(clock) {}

void BlockChecker::check(std::span<const plan::Extent> extents,
                         const std::function<void(std::uint64_t, std::uint64_t)>& seen) {
  std::uint64_t all = bytes;
  for (const plan::Extent& extent : extents) all += extent.end - extent.begin;
  std::vector<io::EngineFile> files;
  for (const format::FileBlocks& file : table_.files) files.push_back({directory_ / file.name, file.size_bytes});
  clock_.begin("read");
  reader_.read(files, extents, [&](std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data) {
    clock_.add_bytes(data.size());
    clock_.begin("verify");
    add(file, offset, data);
    clock_.add_bytes(data.size());
    if (seen) seen(bytes, all);
    clock_.begin("read");
  });
}

void BlockChecker::add(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> piece) {
  const format::FileBlocks& row = table_.files[file];
  while (!piece.empty()) {
    const std::uint64_t block = offset / table_.block_bytes;
    const plan::ByteRange range{block * table_.block_bytes, std::min((block + 1) * table_.block_bytes, row.size_bytes)};
    const auto part = piece.first(std::min<std::uint64_t>(piece.size(), range.end - offset));
    const std::uint32_t crc = format::crc32c(part);
    crc_ = offset == range.begin ? crc : format::combine_crc32c(crc_, crc, part.size());
    offset += part.size();
    bytes += part.size();
    piece = piece.subspan(part.size());
    if (offset != range.end) continue;
    ++blocks;
    if (crc_ != row.crcs.at(block)) add_fault(file, range, crc_);
  }
}

void BlockChecker::add_fault(std::uint32_t file, plan::ByteRange range, std::uint32_t crc) {
  const format::FileBlocks& row = table_.files[file];
  const std::uint64_t block = range.begin / table_.block_bytes;
  BlockFault fault{directory_ / row.name, block, range, crc, row.crcs[block], {}, true};
  try {
    fault.tensors = tensors_in(read_header(fault.path), range);
  } catch (const Error&) {
    fault.has_names = false;  // the header itself is damaged, which is another fault, or the file has none
  }
  faults.push_back(std::move(fault));
}

}  // namespace cairn::checkpoint
