// The commit protocol: a checkpoint becomes visible whole or not at all, and only by the one saver of its root.
//
//   1 commit.begin     make <dir>.<nonce>.partial, after what this saver's own failed saves left is removed
//   2 (data)           every rank writes its extents, headers last; fsync of every data file (io::Engine); then all or a
//                      sample is read back where Options::read_back asks for it (read_back.hpp)
//   3 commit.carry     carried files, each fsynced
//   4 commit.blocks    cairn.blocks, fsynced
//   5 commit.manifest  cairn.json, fsynced
//   6 commit.sync      fsync of the partial directory; the pointer's next content, latest….<nonce>.tmp, fsynced (roots only)
//   7 commit.rename    look; <dir>.<nonce>.partial becomes <dir>: from here on it is visible
//   8 commit.publish   fsync of the parent
//   9 commit.latest    look; latest_checkpointed_iteration.txt replaced atomically; fsync of the parent (roots only)
//
// Each named step is a fault point on every rank; the work of steps 1 and 3-9 is rank 0's. A failure before step 7 leaves
// the partial directory, which no reader opens, and abandon() tries to remove it. A failure at step 8 or 9 leaves a whole
// checkpoint whose durability is not known; the error says so.
//
// Two savers of one root (lease.hpp keeps them apart; one that was taken for dead may go on all the same): a saver makes
// all that it will rename, with its nonce in the name, then looks for a higher epoch, then renames. Who takes over makes the
// higher epoch first, then renames away all that has another nonce (takeover.hpp). So the one before is stopped by its look,
// or its rename finds nothing.
//
// Replacing (overwrite, or a directory that may go): the two names are exchanged in one step. Where the file system
// cannot (NFS), step 7 is
//   a  make <dir>.<nonce>.replaced, look
//   b  rename <dir> into it: readers find it there
//   c  rename the partial directory to <dir>
// and b fails like c when another saver has taken over, because the directory to move into is gone. What was replaced is
// deleted last, when the new one's name is durable.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "base/byte_stream.hpp"
#include "cairn/checkpoint.hpp"
#include "comm/agree.hpp"
#include "comm/communicator.hpp"
#include "directory/lease.hpp"
#include "format/blocks.hpp"
#include "format/manifest.hpp"
#include "plan/file_layout.hpp"

namespace cairn::checkpoint {

struct CommitTarget {
  std::filesystem::path directory;
  bool overwrite = false;               ///< an existing directory of this name is replaced
  bool in_root = false;                 ///< a step of a root: write the latest file
  ReadBack read_back = ReadBack::kOff;  ///< anything else: files of steps 3 to 5 are read back when they are written
  Lease* lease = nullptr;               ///< on rank 0, for steps of a root: held (hold_root). Must outlive the commit
  /// On rank 0: whether an existing directory of this name may be replaced without `overwrite`. Empty: none may.
  std::function<bool(const std::filesystem::path& existing)> may_replace;
};

/// A checkpoint that is being written.
struct Commit {
  CommitTarget target;
  std::filesystem::path partial;  ///< the directory to write into
  std::string nonce;
  bool is_visible = false;  ///< on rank 0: step 7 is done
};

/// Collective, before all else of a save: rank 0 takes the lease, or renews it, and clears what others left when it took it.
/// `lease` is of rank 0, and null on the others. Throws kState naming the holder when another saver lives.
void hold_root(comm::Communicator& communicator, Lease* lease);

/// Step 1, collective. Throws kUsage when the directory exists and may not be replaced.
Commit begin_commit(comm::Communicator& communicator, CommitTarget target);

/// Steps 3-9, collective. On rank 0 `carried` maps names to contents, which are given once, and is added to the manifest's
/// carried files, as are the files of `blocks` to its data files (their sections are looked up in `section_of_file`).
struct CommitContent {
  std::map<std::string, base::ByteStream> carried;
  std::map<std::string, std::string> section_of_file;
  format::BlockTable blocks;
  format::Manifest manifest;
};
/// With the tool's name and the sections of the layout's files; everything else is the caller's.
CommitContent make_content(const plan::FileLayout& layout);

void finish_commit(comm::Communicator& communicator, Commit& commit, CommitContent content);

/// Collective: one named step of a protocol. Every rank passes its fault point; when none has failed, rank 0 works.
void commit_step(comm::Communicator& communicator, const char* name, const std::filesystem::path& path,
                 comm::Work work);

/// Collective, for an Error that all ranks have alike: when it is about files of the partial directory, and that because
/// another saver has taken over, throws kState naming that one instead.
void name_new_holder(comm::Communicator& communicator, const Commit& commit, const Error& error);

/// Rank-local, rank 0: removes what is unfinished as well as it can; never throws. Of a checkpoint that is visible already
/// what it replaced stays, until the next save.
void abandon(const Commit& commit) noexcept;

}  // namespace cairn::checkpoint
