// Reading back what a save wrote (Options::read_back): did storage keep what it reported as written?
//
// Nothing here trusts the writer: files are opened anew, past the page cache, and compared with checksums that were made from
// memory before the writing. A file that differs cannot be mended here, so the save is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/phases.hpp"
#include "comm/communicator.hpp"
#include "format/blocks.hpp"
#include "plan/extents.hpp"

namespace cairn::checkpoint {

/// One block in so many, besides the first and the last of each file.
inline constexpr std::uint64_t kSampledBlocks = 16;

/// Whether kSample reads block `block` of file `file`, which has `blocks`. Pure.
bool is_sampled(std::uint64_t step, std::uint32_t file, std::uint64_t block, std::uint64_t blocks);

/// What this rank reads back; pure. `ranks_of_node`: of the fullest node.
std::vector<plan::Extent> read_back_extents(const format::BlockTable& table, ReadBack how, std::uint64_t step,
                                            std::uint64_t ranks, std::uint64_t rank, std::uint64_t ranks_of_node);

struct ReadBackJob {
  ReadBack how = ReadBack::kOff;
  std::uint64_t step = 0;
  std::span<std::byte> memory;  ///< to read through, in place of its own where it is large enough
};

/// Collective, after the files of the table were synced and closed. Throws Error(kIntegrity) for bytes that differ, kIo when
/// they cannot be read. Returns a warning when what was read may have come from the page cache, else nothing; the same on
/// all ranks.
std::string read_back_data(comm::Communicator& communicator, const std::filesystem::path& directory,
                           const format::BlockTable& table, const ReadBackJob& job, PhaseClock& clock);

}  // namespace cairn::checkpoint
