// Repair of a root, or of one checkpoint: leftovers of savers that ended, the latest file, indexes and damaged blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

struct RepairOptions {
  bool dry_run = false;  ///< only say what would be done: reads all, writes nothing, and needs no lease
  /// Directories from which good bytes may be taken: copies of the checkpoint, or any other checkpoint with the same
  /// blocks; for a root also other roots. They are tried in this order, before the other checkpoints of the root.
  std::vector<std::filesystem::path> from = {};
  /// Time in seconds to wait for another saver of the root to end. Unset: as LeaseOptions::wait_seconds.
  std::optional<double> wait_seconds = {};
};

/// Something that was put right or, with RepairOptions::dry_run, would be.
struct RepairAction {
  std::filesystem::path path;         ///< file or directory
  std::optional<std::uint64_t> step;  ///< of the checkpoint; nothing for the root's own files
  std::string what;                   ///< one line: what was wrong, and what was done
  std::uint64_t blocks = 0;           ///< number of damaged blocks that a data file got back
  std::uint64_t bytes = 0;            ///< size of these blocks, or of the file, in bytes
};

/// Damage for which there are no good bytes.
struct RepairFault {
  std::filesystem::path path;  ///< of the file
  std::optional<std::uint64_t> step;
  std::optional<std::uint64_t> block;  ///< number of the block in a data file; nothing: all of the file
  std::vector<std::string> tensors;    ///< tensors with bytes in the block, as far as the file's header tells
  std::string message;                 ///< one complete line
};

/// The result of a repair. Nothing is wrong if there are neither actions nor faults.
struct Repair {
  std::vector<RepairAction> actions;  ///< in the order in which they were done
  std::vector<RepairFault> faults;    ///< damage that stays: by checkpoint, file and block
  std::vector<std::string> notes;     ///< checkpoints that were not examined, and why
  std::uint64_t checkpoints = 0;      ///< number of checkpoints that were examined
  std::uint64_t blocks = 0;           ///< number of blocks that were read and compared
  std::uint64_t bytes = 0;            ///< their size in bytes
};

/// Rank-local: call it in one process. Repairs a checkpoint directory, or all checkpoints of a root and the root's own
/// files. Reads every block of every data file, and all small files, past the page cache where that is possible.
///
/// A damaged or missing file is written anew next to its place, fsynced, read back, compared with all its checksums,
/// and renamed: a crash leaves the old file or the whole new one. Undamaged files are never written. Bytes of a data
/// file come from a file of the same name and size, with the same header, at the same place, on another inode, if they
/// have the block's checksum (CRC-32C); src/life/README.md says how far that is to be trusted. A file of which a block
/// is found nowhere stays as it is, and its damaged blocks are among the faults.
///
/// In a root the call is the root's saver: it takes the lease, and releases it at the end; what savers left that have
/// ended is cleared as before a save. A checkpoint outside a root must not be in use by another repair.
///
/// Throws kUsage for a `from` that is not a checkpoint or a root, or that is the repaired one itself; kNotFound if
/// there is no checkpoint; kState if the root has another saver; kIo for errors of the system that concern no single
/// file of a checkpoint.
Repair repair(const std::filesystem::path& path, const RepairOptions& options = {});

}  // namespace cairn
