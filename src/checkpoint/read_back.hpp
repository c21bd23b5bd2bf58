// Reads back the data files of a save, conversion or staging file (Options::read_back), to check that storage kept the
// bytes that it reported as written.
//
// The writer is not trusted: files are opened again, read past the page cache, and compared with checksums that were
// computed from the bytes in memory. A file that differs cannot be repaired, so the save fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/call.hpp"
#include "comm/communicator.hpp"
#include "format/blocks.hpp"
#include "io/disk_reader.hpp"
#include "opening/written_blocks.hpp"
#include "plan/extents.hpp"

namespace cairn::checkpoint {

// Compares blocks on storage with their checksums, past the page cache (io/disk_reader.hpp).

/// Size of a rank's buffer in verify(); the buffers of a node's ranks together keep its disk busy.
std::uint64_t disk_reader_bytes(std::uint64_t ranks_of_node);

/// Rank-local. Works without a valid header: tensor names are looked up only when a block is faulty.
class BlockChecker {
 public:
  /// `table`, `reader` and `clock` must outlive the object. Phases: "read" (waiting for storage) and "verify".
  BlockChecker(std::filesystem::path directory, const format::BlockTable& table, io::DiskReader& reader,
               PhaseClock& clock);

  /// Checks extents that consist of whole blocks. Calls `seen` with the numbers of checked bytes and of all bytes.
  /// Throws if reading fails; blocks that differ are in `faults`.
  void check(std::span<const plan::Extent> extents,
             const std::function<void(std::uint64_t bytes, std::uint64_t all)>& seen = {});

  std::vector<opening::BlockFault> faults;  ///< in the order of the extents
  std::uint64_t bytes = 0;                  ///< bytes checked so far
  std::uint64_t blocks = 0;

 private:
  void add(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> piece);
  void add_fault(const plan::FileRange& range, std::uint32_t crc);

  std::filesystem::path directory_;
  const format::BlockTable& table_;
  io::DiskReader& reader_;
  PhaseClock& clock_;
  std::uint32_t crc_ = 0;  ///< checksum of the current block so far
};

/// kSample reads about one block out of this many, and also the first and the last block of each file.
inline constexpr std::uint64_t kSampledBlocks = 16;

/// Whether kSample reads block `block` of file `file`, which has `blocks` blocks. Pure.
bool is_sampled(std::uint64_t step, std::uint32_t file, std::uint64_t block, std::uint64_t blocks);

/// The extents that rank `rank` of `ranks` reads back; pure. `ranks_of_node`: number of ranks on the fullest node.
std::vector<plan::Extent> read_back_extents(const format::BlockTable& table, ReadBack how, std::uint64_t step,
                                            std::uint64_t ranks, std::uint64_t rank, std::uint64_t ranks_of_node);

struct ReadBackJob {
  ReadBack how = ReadBack::kOff;
  std::uint64_t step = 0;
  std::span<std::byte> memory;  ///< buffer for reading, if large enough; otherwise a buffer is allocated
};

/// Collective, after the files of the table were synced and closed. Throws Error(kIntegrity) for bytes that differ, kIo
/// for bytes that cannot be read. Returns a warning, the same on all ranks, if bytes may come from the page cache.
std::string read_back_data(comm::Communicator& communicator, const std::filesystem::path& directory,
                           const format::BlockTable& table, const ReadBackJob& job, Call& call);

}  // namespace cairn::checkpoint
