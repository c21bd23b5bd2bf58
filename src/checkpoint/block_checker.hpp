// Compares what lies on storage with the checksums that were made when it was written, past the page cache
// (io/disk_reader.hpp): for verify, and for saves that read back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/phases.hpp"
#include "directory/written_blocks.hpp"
#include "format/blocks.hpp"
#include "io/disk_reader.hpp"
#include "plan/extents.hpp"

namespace cairn::checkpoint {

/// Memory that a rank reads through when it has none for it: enough for the disk of its node, with that of the others there.
std::uint64_t disk_reader_bytes(std::uint64_t ranks_of_node);

/// Rank-local. Needs no sound header; the names of tensors are looked up when a block is faulty.
class BlockChecker {
 public:
  /// `table`, `reader` and `clock` must outlive the object. Phases: "read", which is what was waited for, and "verify".
  BlockChecker(std::filesystem::path directory, const format::BlockTable& table, io::DiskReader& reader,
               PhaseClock& clock);

  /// Extents of whole blocks, or up to the end of a file. `seen`: called with the bytes checked so far, and with all that
  /// are to be. Throws what reading throws; blocks that differ are in `faults`.
  void check(std::span<const plan::Extent> extents,
             const std::function<void(std::uint64_t bytes, std::uint64_t all)>& seen = {});

  std::vector<BlockFault> faults;  ///< in the order of the extents
  std::uint64_t bytes = 0;         ///< checked
  std::uint64_t blocks = 0;

 private:
  void add(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> piece);
  void add_fault(std::uint32_t file, plan::ByteRange range, std::uint32_t crc);

  std::filesystem::path directory_;
  const format::BlockTable& table_;
  io::DiskReader& reader_;
  PhaseClock& clock_;
  std::uint32_t crc_ = 0;  ///< of what has come of a block
};

}  // namespace cairn::checkpoint
