// Reading back what a save wrote (Options::read_back): did storage keep what it reported as written?
//
// Nothing here trusts the writer: files are opened again, past the page cache, and compared with checksums that were
// made from memory before the writing. A file that differs cannot be mended here, so the save is refused.
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

// Compares what lies on storage with the checksums that were made when it was written, past the page cache
// (io/disk_reader.hpp): for verify, and for saves that read back.

/// Memory that a rank reads through when it has none for it: enough for the disk of its node, with that of the others
/// there.
std::uint64_t disk_reader_bytes(std::uint64_t ranks_of_node);

/// Rank-local. Needs no sound header; the names of tensors are looked up when a block is faulty.
class BlockChecker {
 public:
  /// `table`, `reader` and `clock` must outlive the object. Phases: "read", which is what was waited for, and "verify".
  BlockChecker(std::filesystem::path directory, const format::BlockTable& table, io::DiskReader& reader,
               PhaseClock& clock);

  /// Extents of whole blocks, or up to the end of a file. `seen`: called with the bytes checked so far, and with all
  /// that are to be. Throws what reading throws; blocks that differ are in `faults`.
  void check(std::span<const plan::Extent> extents,
             const std::function<void(std::uint64_t bytes, std::uint64_t all)>& seen = {});

  std::vector<opening::BlockFault> faults;  ///< in the order of the extents
  std::uint64_t bytes = 0;                  ///< checked
  std::uint64_t blocks = 0;

 private:
  void add(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> piece);
  void add_fault(const plan::FileRange& range, std::uint32_t crc);

  std::filesystem::path directory_;
  const format::BlockTable& table_;
  io::DiskReader& reader_;
  PhaseClock& clock_;
  std::uint32_t crc_ = 0;  ///< of what has come of a block
};

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

/// Collective, after the files of the table were synced and closed. Throws Error(kIntegrity) for bytes that differ, kIo
/// when they cannot be read. Returns a warning when what was read may have come from the page cache, else nothing; the
/// same on all ranks.
std::string read_back_data(comm::Communicator& communicator, const std::filesystem::path& directory,
                           const format::BlockTable& table, const ReadBackJob& job, Call& call);

}  // namespace cairn::checkpoint
