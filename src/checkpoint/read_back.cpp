#include "checkpoint/read_back.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "base/aligned_buffer.hpp"
#include "base/checked.hpp"
#include "base/counted.hpp"
#include "base/mix.hpp"
#include "base/units.hpp"
#include "cairn/error.hpp"
#include "checkpoint/block_checker.hpp"
#include "checkpoint/progress.hpp"
#include "comm/agree.hpp"
#include "directory/read_back_file.hpp"
#include "io/disk_reader.hpp"
#include "os/file.hpp"

namespace cairn::checkpoint {
namespace {

/// The rank whose even share this one reads: with its ranks placed node by node, one of the next node.
std::uint64_t read_for(std::uint64_t rank, std::uint64_t ranks, std::uint64_t ranks_of_node) {
  return (rank + (ranks_of_node < ranks ? ranks_of_node : 1)) % ranks;
}

/// The message of the first block that differs.
std::string describe(const BlockFault& fault, std::uint64_t faults) {
  return fmt::format("'{}', which was just written, reads back otherwise: {}{}: {}",
                     base::printable(fault.path.string(), 1000), words_of(fault),
                     faults == 1 ? "" : " and " + base::counted(faults - 1, "more block"), kReadBackRefused);
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
                           const format::BlockTable& table, const ReadBackJob& job, PhaseClock& clock) {
  if (job.how == ReadBack::kOff) return "";
  clock.begin("read back");
  const std::uint64_t ranks_of_node = communicator.max(static_cast<std::uint64_t>(communicator.node()->size()));
  base::AlignedBuffer own;
  std::optional<io::DiskReader> reader;
  PhaseClock parts;  // of no interest beside the whole
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
      clock.begin("read back");  // progress, for ranks that wait
      report_progress("reading back", bytes, all);
    });
  });
  clock.add_bytes(checker->bytes);
  const std::uint64_t faults = communicator.sum(checker->faults.size());
  comm::agree(communicator, "read back", [&] {
    if (!checker->faults.empty()) throw Error(ErrorKind::kIntegrity, describe(checker->faults.front(), faults));
  });
  std::string why = reader->why_cached();
  const auto first = communicator.lowest_rank_where(!why.empty());
  if (!first) return "";
  communicator.share(why, *first);
  return fmt::format("what was read back may have come from the page cache and not from storage: {}", why);
}

}  // namespace cairn::checkpoint
