#include "checkpoint/read_back.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/aligned_buffer.hpp"
#include "base/checked.hpp"
#include "base/mix.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "checkpoint/progress.hpp"
#include "comm/agree.hpp"
#include "format/crc32c.hpp"
#include "io/whole_files.hpp"
#include "opening/open.hpp"
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
    const plan::FileRange range{file, block * table_.block_bytes,
                                std::min((block + 1) * table_.block_bytes, row.size_bytes)};
    const auto part = piece.first(std::min<std::uint64_t>(piece.size(), range.end - offset));
    const std::uint32_t crc = format::crc32c(part);
    crc_ = offset == range.begin ? crc : format::combine_crc32c(crc_, crc, part.size());
    offset += part.size();
    bytes += part.size();
    piece = piece.subspan(part.size());
    if (offset != range.end) continue;
    ++blocks;
    if (crc_ != row.crcs.at(block)) add_fault(range, crc_);
  }
}

void BlockChecker::add_fault(const plan::FileRange& range, std::uint32_t crc) {
  const format::FileBlocks& row = table_.files[range.file];
  const std::uint64_t block = range.begin / table_.block_bytes;
  opening::BlockFault fault{directory_ / row.name, block, range, crc, row.crcs[block], {}, true};
  try {
    fault.tensors = opening::tensors_in(opening::read_header(fault.path), range);
  } catch (const Error&) {
    fault.has_names = false;  // the header is damaged, which is a separate fault, or the file has no header
  }
  faults.push_back(std::move(fault));
}

namespace {

/// The rank whose even share `rank` reads: the next rank, or one of the next node if ranks are placed node by node.
std::uint64_t read_for(std::uint64_t rank, std::uint64_t ranks, std::uint64_t ranks_of_node) {
  return (rank + (ranks_of_node < ranks ? ranks_of_node : 1)) % ranks;
}

/// The message about `fault`, the first of `faults` blocks that differ.
std::string describe(const opening::BlockFault& fault, std::uint64_t faults) {
  return fmt::format("'{}', which was just written, reads back otherwise: {}{}: {}", os::shown(fault.path),
                     opening::words_of(fault), faults == 1 ? "" : " and " + base::counted(faults - 1, "more block"),
                     io::kReadBackRefused);
}

}  // namespace

bool is_sampled(std::uint64_t step, std::uint32_t file, std::uint64_t block, std::uint64_t blocks) {
  if (block == 0 || block + 1 == blocks) return true;
  return base::split_mix64(base::split_mix64(base::split_mix64(step) + file) + block) % kSampledBlocks == 0;
}

std::vector<plan::Extent> read_back_extents(const format::BlockTable& table, ReadBack how, std::uint64_t step,
                                            std::uint64_t ranks, std::uint64_t rank, std::uint64_t ranks_of_node) {
  if (how == ReadBack::kOff) return {};
  std::vector<std::uint64_t> sizes;
  for (const format::FileBlocks& file : table.files) sizes.push_back(file.size_bytes);
  const plan::ExtentMap map(plan::whole_files(sizes), base::narrow<int>(ranks, "ranks"), table.block_bytes);
  std::vector<plan::Extent> extents = map.of(base::narrow<int>(read_for(rank, ranks, ranks_of_node), "rank"));
  if (how == ReadBack::kAll) return extents;
  std::vector<plan::Extent> sample;
  for (const plan::Extent& extent : extents) {
    for (std::uint64_t begin = extent.begin; begin < extent.end; begin += table.block_bytes) {
      const std::uint64_t blocks = base::ceil_div(sizes[extent.file], table.block_bytes);
      if (!is_sampled(step, extent.file, begin / table.block_bytes, blocks)) continue;
      sample.push_back({extent.file, begin, std::min(begin + table.block_bytes, extent.end), extent.rank});
    }
  }
  return sample;
}

std::string read_back_data(comm::Communicator& communicator, const std::filesystem::path& directory,
                           const format::BlockTable& table, const ReadBackJob& job, Call& call) {
  if (job.how == ReadBack::kOff) return "";
  call.begin("read back");
  const std::uint64_t ranks_of_node = communicator.max(static_cast<std::uint64_t>(communicator.node()->size()));
  base::AlignedBuffer own;
  std::optional<io::DiskReader> reader;
  PhaseClock parts;  // not reported, because the phase "read back" has the sum
  std::optional<BlockChecker> checker;
  comm::agree(communicator, "read back", [&] {
    std::span<std::byte> memory = job.memory;
    if (memory.size() < io::DiskReader::kLeastBytes) {
      own = base::AlignedBuffer(io::DiskReader::kLeastBytes);
      memory = own.span();
    }
    reader.emplace(memory);
    checker.emplace(directory, table, *reader, parts);
    const auto extents = read_back_extents(table, job.how, job.step, static_cast<std::uint64_t>(communicator.size()),
                                           static_cast<std::uint64_t>(communicator.rank()), ranks_of_node);
    checker->check(extents, [&](std::uint64_t bytes, std::uint64_t all) {
      call.begin("read back");  // progress, for ranks that wait
      report_progress("reading back", bytes, all);
    });
  });
  call.add_bytes(checker->bytes);
  const std::uint64_t faults = communicator.sum(checker->faults.size());
  comm::agree(communicator, "read back", [&] {
    if (checker->faults.empty()) return;
    const opening::BlockFault& first = checker->faults.front();
    throw Error(ErrorKind::kIntegrity, describe(first, faults), {0, first.path.native()});
  });
  std::string why = reader->why_cached();
  const auto first = communicator.lowest_rank_where(!why.empty());
  if (!first) return "";
  communicator.share(why, *first);
  return fmt::format("what was read back may have come from the page cache and not from storage: {}", why);
}

}  // namespace cairn::checkpoint
