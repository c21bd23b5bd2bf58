// Repairs one checkpoint directory. Each file that is damaged or missing is written anew in four steps, each a fault
// point:
//
//   1  repair.write    make <file>.<nonce>.repair with the good bytes, with the old file's permissions; fsync
//   2  repair.check    read it back past the page cache, and compare it with all its checksums
//   3  repair.rename   look for another saver; rename it to <file>
//   4  repair.sync     fsync of the directory
//
// An ending before step 3 leaves the old file, damaged as it was, and a .repair file, which the next repair removes.
// Undamaged files are never written, so a repair can be repeated at any time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cairn/repair.hpp"

namespace cairn::life {

/// The checkpoint to repair, and where good bytes may be.
struct RepairJob {
  std::filesystem::path directory;
  std::optional<std::uint64_t> step = {};  ///< by its name in a root
  bool dry_run = false;
  std::string nonce;                               ///< in the names of new files
  std::function<void()> look = [] {};              ///< throws if another saver has taken the root over
  std::vector<std::filesystem::path> from = {};    ///< checkpoint directories that the user named
  std::vector<std::filesystem::path> beside = {};  ///< other checkpoints of the root, the best first
};

/// Rank-local. Adds to `result`. Throws kState from look(), and shortages of the machine; all other failures are faults
/// of the files that they concern.
void repair_checkpoint(const RepairJob& job, Repair& result);

/// The files in a checkpoint's directory that a repair left when it ended early.
std::vector<std::filesystem::path> left_by_repairs(const std::filesystem::path& directory);

}  // namespace cairn::life
