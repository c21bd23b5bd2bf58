// The commit protocol: a checkpoint becomes visible whole or not at all.
//
//   1 commit.begin     remove what a crash left (*.partial of this name, or of all steps of a root); make <dir>.partial
//   2 (data)           every rank writes its extents, headers last; fsync of every data file (io::Engine)
//   3 commit.carry     carried files, each fsynced
//   4 commit.blocks    cairn.blocks, fsynced
//   5 commit.manifest  cairn.json, fsynced
//   6 commit.sync      fsync of <dir>.partial
//   7 commit.rename    <dir>.partial becomes <dir>: from here on it is visible
//   8 commit.publish   fsync of the parent
//   9 commit.latest    latest_checkpointed_iteration.txt replaced atomically (roots only)
//
// Each named step is a fault point on every rank; the work of steps 1 and 3-9 is rank 0's. A failure before step 7 leaves
// <dir>.partial, which no reader opens, and abandon() tries to remove it. A failure at step 8 or 9 leaves a whole
// checkpoint whose durability is not known; the error says so.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "base/bytes.hpp"
#include "comm/communicator.hpp"
#include "format/blocks.hpp"
#include "format/manifest.hpp"
#include "plan/file_layout.hpp"

namespace cairn::checkpoint {

struct CommitTarget {
  std::filesystem::path directory;
  bool overwrite = false;  ///< an existing directory of this name is replaced
  bool in_root = false;    ///< steps of a root: clear all stale partial ones, write the latest file
};

/// Step 1, collective. Throws kUsage when the directory exists and may not be overwritten.
void begin_commit(comm::Communicator& communicator, const CommitTarget& target);

/// A carried file is read whole.
inline constexpr std::uint64_t kMaxCarriedBytes = 1ULL << 30;

/// Steps 3-9, collective. On rank 0 `carried` maps names to contents and is added to the manifest's carried files, as are
/// the files of `blocks` to its data files (their sections are looked up in `section_of_file`).
struct CommitContent {
  std::map<std::string, base::Bytes> carried;
  std::map<std::string, std::string> section_of_file;
  format::BlockTable blocks;
  format::Manifest manifest;
};
/// With the tool's name and the sections of the layout's files; everything else is the caller's.
CommitContent make_content(const plan::FileLayout& layout);

void finish_commit(comm::Communicator& communicator, const CommitTarget& target, CommitContent content);

/// Collective: one named step of a protocol. Every rank passes its fault point; when none has failed, rank 0 works.
void commit_step(comm::Communicator& communicator, const char* name, const std::filesystem::path& path,
                 const std::function<void()>& work);

/// Rank-local, rank 0: removes the partial directory as well as it can; never throws.
void abandon(const CommitTarget& target) noexcept;

}  // namespace cairn::checkpoint
