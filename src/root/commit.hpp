// The commit protocol: a checkpoint becomes visible whole or not at all, and only by the one saver of its root.
//
//   1 commit.begin     make <dir>.<nonce>.partial, after what this saver's own failed saves left is removed
//   2 (data)           every rank writes its extents, headers last; fsync of every data file (io::Engine); then all or a
//                      sample is read back where Options::read_back asks for it (read_back.hpp)
//   3 commit.carry     carried files, each fsynced
//   4 commit.blocks    cairn.blocks, fsynced
//   5 commit.manifest  cairn.json, fsynced
//   6 commit.sync      fsync of the partial directory; the pointer's next content, latest….<nonce>.tmp, fsynced (roots
//                      only)
//   7 commit.rename    look; <dir>.<nonce>.partial becomes <dir>: from here on it is visible
//   8 commit.publish   fsync of the parent
//   9 commit.latest    look; latest_checkpointed_iteration.txt replaced atomically (roots only)
//  10 commit.noted     fsync of the parent; what the file says is noted in the root (roots only)
//
// Each named step is a fault point on every rank; the work of steps 1 and 3-10 is rank 0's. A failure before step 7
// leaves the partial directory, which no reader opens, and ~Commit() tries to remove it. A failure at step 8, 9
// or 10 leaves a whole checkpoint; the error says what is not known of it, or not done.
//
// Two savers of one root (lease.hpp keeps them apart; one that was taken for dead may go on all the same): a saver
// makes all that it will rename, with its nonce in the name, then looks for a higher epoch, then renames. Who takes
// over makes the higher epoch first, then renames away all that has another nonce (takeover). So the one before is
// stopped by its look, or its rename finds nothing.
//
// Replacing (what may go: check_replaceable(), standing.hpp): the two names are exchanged in one step. Where the file system
// cannot (NFS), step 7 is
//   a  make <dir>.<nonce>.replaced, look
//   b  rename <dir> into it: readers find it there
//   c  rename the partial directory to <dir>
// and b fails like c when another saver has taken over, because the directory to move into is gone. What was replaced
// is deleted last, when the new one's name is durable.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "base/bytes.hpp"
#include "cairn/checkpoint.hpp"
#include "comm/agree.hpp"
#include "comm/communicator.hpp"
#include "format/blocks.hpp"
#include "format/manifest.hpp"
#include "plan/file_layout.hpp"
#include "root/lease.hpp"
#include "root/run_name.hpp"
#include "root/standing.hpp"

namespace cairn::root {

// What the one saver of a root does with what others left there.

/// Rank-local, by the holder of the lease after it took it, before it saves. Renames away everything unfinished that is
/// not of its own nonce, so that a saver that was taken for dead and goes on finds nothing that it could rename, then
/// deletes it:
///   checkpoint-<step>.<nonce>.partial, the pointer's temporary   away
///   checkpoint-<step>.<nonce>.replaced                           its old checkpoint gets its name back where nothing
///                                                                has it, else it is deleted once a newer one has it
///                                                                whole
/// Nothing of another name is touched. What cannot be deleted is left, with a warning. Throws kState when another
/// saver has taken the lease, kIo when something cannot be renamed away: then the root is not safe, and no save may go
/// on.
void clear_root(Lease& lease);

/// As clear_root, for what this saver's own failed saves left.
void clear_own(Lease& lease);

struct CommitTarget {
  std::filesystem::path directory;
  Replacing may_replace = {};           ///< what has this name already; asked on rank 0
  bool in_root = false;                 ///< a step of a root: write the latest file
  ReadBack read_back = ReadBack::kOff;  ///< anything else: files of steps 3 to 5 are read back when they are written
  Lease* lease = nullptr;               ///< on rank 0, for steps of a root: held (hold_root). Must outlive the commit
};

/// Collective, before all else of a save: rank 0 takes the lease, or renews it, and clears what others left when it
/// took it. `lease` is of rank 0, and null on the others. Throws kState naming the holder when another saver lives, and,
/// with `run`, as name_of_run() before anything of the root is touched.
void hold_root(comm::Communicator& communicator, Lease* lease, const RunRequest* run = nullptr);

/// What steps 3-10 write beside the data files. On rank 0 `carried` maps names to contents, which are given once, and is
/// added to the manifest's carried files, as are the files of `blocks` to its data files (their sections are looked up
/// in `section_of_file`).
struct CommitContent {
  std::map<std::string, base::ByteStream> carried;
  std::map<std::string, std::string> section_of_file;
  format::BlockTable blocks;
  format::Manifest manifest;
};
/// With the tool's name and the sections of the layout's files; everything else is the caller's.
CommitContent make_content(const plan::FileLayout& layout);

/// Collective: one named step of a protocol. Every rank passes its fault point; when none has failed, rank 0 works.
void commit_step(comm::Communicator& communicator, const char* name, const std::filesystem::path& path,
                 comm::Work work);

/// A checkpoint that is being written.
class Commit {
 public:
  /// Step 1, collective. Throws kUsage when the directory exists and may not be replaced.
  Commit(comm::Communicator& communicator, CommitTarget target);
  /// On rank 0 removes what is unfinished as well as it can: unless step 7 was done, the partial directory with all in
  /// it, in which no file may be open any more. Of a checkpoint that is visible already what it replaced stays, until
  /// the next save.
  ~Commit();
  Commit(const Commit&) = delete;
  Commit& operator=(const Commit&) = delete;

  /// The directory to write into.
  [[nodiscard]] const std::filesystem::path& partial() const { return partial_; }

  /// Steps 3-10, collective, once.
  void finish(CommitContent content);

  /// Collective, for an Error that all ranks have alike: when it is about files of the partial directory, and that
  /// because another saver has taken over, throws kState naming that one instead.
  void name_new_holder(const Error& error) const;

 private:
  void look() const;
  void step(const char* name, const std::filesystem::path& path, comm::Work work) const;
  /// What an error of a step after the rename means.
  struct Meaning {
    const char* of_failure;
    const char* of_lost_root;  ///< another saver has taken it
  };
  void after_rename(const char* name, const Meaning& means, comm::Work work) const;
  void name_as_latest(const format::Manifest& manifest) const;
  void write_file(const std::string& name, std::span<const std::byte> bytes) const;
  void make_visible() const;
  void give_name() const;
  void set_aside() const;
  void replace_in_steps() const;
  void remove_unfinished() const noexcept;
  void remove_replaced() const noexcept;

  comm::Communicator& communicator_;
  CommitTarget target_;
  std::filesystem::path partial_;
  std::string nonce_;        ///< on rank 0
  bool is_visible_ = false;  ///< on rank 0: step 7 is done
  bool is_done_ = false;
};

}  // namespace cairn::root
