// The commit protocol: a checkpoint becomes visible whole or not at all, and only by the one saver of its root.
//
//   1  commit.begin     remove the remains of this saver's own failed saves; make <dir>.<nonce>.partial
//   2  (data)           every rank writes its extents, headers last; fsync of every data file (io::Engine);
//                       read all or a sample back, as Options::read_back requires (checkpoint/read_back.hpp)
//   3  commit.carry     write the carried files; fsync of each
//   4  commit.blocks    write cairn.blocks; fsync
//   5  commit.manifest  write cairn.json; fsync
//   6  commit.sync      fsync of the partial directory; in a root: write latest….<nonce>.tmp; fsync
//   7  commit.rename    look; rename <dir>.<nonce>.partial to <dir>: the checkpoint is visible
//   8  commit.publish   fsync of the parent
//   9  commit.latest    in a root: look; rename the .tmp file of step 6 to latest_checkpointed_iteration.txt
//  10  commit.noted     in a root: fsync of the parent; note the step in .cairn/state.json
//
// A checkpoint that holds a part of a state has no latest file: steps 9 and 10 are left out, and step 6 makes no .tmp.
//
// Each named step is a fault point on every rank; rank 0 alone does the work of steps 1 and 3-10. A failure up to
// step 7 leaves the partial directory, which no reader opens; ~Commit() tries to remove it. A failure of step 8, 9 or
// 10 leaves a whole checkpoint, and the error says what is uncertain or undone.
//
// Two savers of one root: the lease keeps them apart (lease.hpp), but a saver that was presumed dead may still be
// running. Data stays whole because
//   - a saver creates everything that it will rename, with its nonce in the names, then looks for a higher epoch, then
//     renames
//   - a saver that takes over creates the higher epoch first, then renames away every name with another nonce
// So the former saver is stopped by its look, or its rename finds nothing.
//
// Replacing (allowed by check_replaceable(), standing.hpp): step 7 exchanges the two names atomically. If the file
// system cannot do that (NFS), step 7 is
//   a  make <dir>.<nonce>.replaced; look
//   b  rename <dir> into <dir>.<nonce>.replaced, where readers find the old checkpoint
//   c  rename the partial directory to <dir>
// After a takeover b fails because the directory of step a is gone, and c because the partial directory is gone. The
// replaced checkpoint is deleted last, when the new name is durable.
#pragma once

#include <filesystem>
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

struct CommitTarget {
  std::filesystem::path directory;
  Replacing may_replace = {};           ///< only rank 0's value is used
  bool in_root = false;                 ///< the checkpoint is a step of a root, whose latest file names it if it
                                        ///< holds a whole state
  ReadBack read_back = ReadBack::kOff;  ///< any value but kOff: read the files of steps 3 to 5 back after writing them
  Lease* lease = nullptr;               ///< on rank 0, for steps of a root: a held lease (hold_root), which must
                                        ///< outlive the commit
};

/// Collective; a save makes this call before it writes. Rank 0 takes or renews the lease, and clears the root after
/// taking the lease. `lease` is null on other ranks. Throws kState naming the holder if another saver is alive. With
/// `run`, also throws as name_of_run() before taking the lease. In both cases nothing in the root has been touched.
void hold_root(comm::Communicator& communicator, Lease* lease, const RunRequest* run = nullptr);
/// Rank-local: as hold_root(), in one process.
void take_root(Lease& lease, const RunRequest* run = nullptr);

/// Rank-local, by the holder of the lease: removes the remains of its own failed saves and prunings. A checkpoint that
/// they moved aside gets its name back.
void clear_own(Lease& lease);

/// The input of steps 3-10, on rank 0. `carried` maps names to contents, each of which is read once. Commit::finish()
/// adds the carried files, and the files of `blocks` with their sections (`section_of_file`), to the manifest.
struct CommitContent {
  std::map<std::string, base::ByteStream> carried;
  std::map<std::string, std::string> section_of_file;
  std::map<std::string, std::string> sha256_of_file = {};  ///< ManifestFile::blocks_sha256, of files that have one
  format::BlockTable blocks;
  format::Manifest manifest;
};
/// Content with the tool's name and the sections of the layout's files; the caller fills in the rest.
CommitContent make_content(const plan::FileLayout& layout);

/// Collective: a named step of a protocol. Each rank passes its fault point; if no rank failed, rank 0 does the work.
void commit_step(comm::Communicator& communicator, const char* name, const std::filesystem::path& path,
                 comm::Work work);

/// A checkpoint that is being written.
class Commit {
 public:
  /// Step 1, collective. Throws kUsage if the directory exists and may not be replaced.
  Commit(comm::Communicator& communicator, CommitTarget target);
  /// On rank 0: tries to remove the partial directory, unless step 7 was done; no file in it may be open. After a
  /// failure later than step 7 the replaced checkpoint stays until the next save into the root.
  ~Commit();
  Commit(const Commit&) = delete;
  Commit& operator=(const Commit&) = delete;

  /// The directory to write into.
  [[nodiscard]] const std::filesystem::path& partial() const { return partial_; }

  /// Steps 3-10, collective, once.
  void finish(CommitContent content);

  /// Collective, with the same Error on all ranks. Throws kState naming the new holder if the error names the partial
  /// directory and another saver has taken over; otherwise returns.
  void name_new_holder(const Error& error) const;

 private:
  void look() const;
  void step(const char* name, const std::filesystem::path& path, comm::Work work) const;
  /// The meaning, for the checkpoint, of an error after the rename.
  struct Meaning {
    const char* of_failure;
    const char* of_lost_root;  ///< used if another saver has taken the lease, or the lease ran out
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
