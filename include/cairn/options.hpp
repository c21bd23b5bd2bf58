// The options of a Checkpointer, in groups. All except the callbacks must be the same on all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cairn/checks.hpp"
#include "cairn/environment.hpp"
#include "cairn/report.hpp"
#include "cairn/retention.hpp"
#include "cairn/selection.hpp"
#include "cairn/waiting.hpp"

namespace cairn {

/// Codecs and omissions with which saves shrink the state. Moments of Adam have these words in their names: exp_avg and
/// exp_avg_sq, moment1 and moment2 (with or without _0), adam_m and adam_v. Errors of codecs: src/quant/README.md.
struct Quantisation {
  std::map<std::string, std::string> codecs;  ///< section -> "q8", "q4", "paddle-o1", "paddle-o2" or "off"
  bool disable_ckpt_quant = false;            ///< save as if `codecs` were empty
  /// If above 0: refuse a save in which the error of a tensor's updates (CodingError::update_rms) is larger.
  double max_update_error = 0;
  bool report = false;                  ///< fill Report::coding_errors
  bool remove_master_weight = false;    ///< omit master weights whose model weights are saved; loads restore them from
                                        ///< the model weights
  bool skip_save_model_weight = false;  ///< omit model weights whose master weights are saved; loads round the master
                                        ///< weights
  bool master_weight_compatible = false;  ///< load master weights from model weights if the checkpoint has none
  bool decode_by_reciprocals = false;     ///< decode paddle-o1 and paddle-o2 as paddlepaddle 2.6 to 3.2 did
};

/// A root has one saver: a Checkpointer holds the root's lease, and renews it, from its first save to its destruction.
struct LeaseOptions {
  double seconds = 60;  ///< a saver that has not renewed its lease for this long may be presumed dead
  /// The time for which a first save waits for another live saver before it fails. Unset: 1,800 s if the other
  /// saver is another process, and the batch system restarted this job or runs both in one job; otherwise 0.
  std::optional<double> wait_seconds;
};

/// Whether a save reads its files back, after the fsync and before the commit, and compares them with the checksums of
/// the bytes in memory. This finds storage that loses bytes after reporting them as written. A save in which any byte
/// differs is refused (kIntegrity, naming file, block and tensors), and the previous checkpoint stays the newest.
///
/// Reads go past the page cache, as in `cairn verify` (if that is impossible, the report has a warning), through a new
/// descriptor. All ranks share the data files evenly. Each block is read on a node other than its writer's, or by
/// another rank if there is only one node; this assumes evenly assigned bytes and ranks placed node by node. Rank 0
/// reads carried files, indexes, cairn.blocks and cairn.json. The latest file is not read. Caches of a storage server
/// cannot be bypassed.
///
/// kAll takes about as long as a verify. kSample reads rank 0's files whole, and of every data file the first block,
/// the last block and about one in 16 of the others, different ones in each step. Block b of file f, counted from 0 in
/// the order of cairn.blocks, is read when a hash of (step, f, b) is divisible by 16 (src/checkpoint/read_back.hpp).
enum class ReadBack { kOff, kSample, kAll };

/// The path of the bytes to storage.
struct EngineOptions {
  std::string name = "auto";                 ///< "auto", "direct", "mpiio" or "posix"
  std::uint64_t aggregators_per_node = 0;    ///< number of ranks of a node that write and read; 0: 8 on a parallel
                                             ///< file system or NFS, otherwise all
  std::map<std::string, std::string> hints;  ///< passed to MPI-IO and recorded
};

/// The files of a checkpoint.
struct FileOptions {
  std::uint64_t max_bytes = 5'000'000'000;  ///< tensor bytes in a file before the next file begins
  std::uint64_t align_bytes = 4096;         ///< data sections begin on multiples of this: a power of two, 8 to 64 MiB
  std::uint64_t block_bytes = 4ULL << 20;   ///< checksum unit: 1 byte to 1 GiB
  /// `__metadata__` of every data file, in UTF-8. kUsage for keys that begin with "cairn." (Cairn's own) and for
  /// "DCP_SHARDING_INFO" (torch's).
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  /// The system whose files a save writes, named as in `cairn convert --to`. Empty or "hf": Hugging Face files.
  /// "paddlenlp" and "paddleformers": files from which the trainer of that PaddlePaddle package resumes, with its
  /// indexes and small files; Cairn loads them like any others. The program must use the package's tensor names and
  /// order of dimensions; a save throws kUsage, naming a tensor that the package's loader would not find. The save
  /// takes "scheduler" (JSON of last_epoch and last_lr) and "paddle" (the value from an earlier load_extras(), which
  /// counts how often moments were coded) from Extras::metadata, unless scheduler.pdparams is carried. Overrides
  /// "format" of `metadata`. Rules: src/interop/paddle/README.md, "Written". Ignored by conversions and staging files.
  std::string form;
  /// Permission bits of files, whatever the umask; directories get x where r is, and keep the set-group-ID bit. With
  /// 0660 and a group, all members of the group can load, save and take over the root. The bits apply to all that Cairn
  /// creates: the root and missing directories above it, checkpoints with their content, staging files, the latest
  /// file, `.cairn`. Unset: the umask decides. Existing files stay as they are. kUsage for other bits, or if 0600 is
  /// not included.
  std::optional<unsigned> mode;
  /// Group of the same files, by name or number. Empty: the system's choice. kUsage, before anything is written, for a
  /// group that is unknown or that this process is not in (root may give any).
  std::string group;
};

/// The way in which a save takes files of frozen tensors from an earlier checkpoint, whose content is the same, instead
/// of writing them again. Frozen tensors then have files of their own. Every checkpoint is complete by itself: removing
/// one never changes another. The content is the same if the SHA-256 digests of all bytes of the file are.
enum class Reuse {
  kNever,     ///< every save writes all files
  kReflink,   ///< files share their storage (XFS, Btrfs), and are written in full where that is impossible
  kHardLink,  ///< as kReflink, and where that is impossible, another name of the same file, which nothing may write
              ///< into: such files have mode 0444
};

/// Resources that a call may use, on each rank.
struct Limits {
  std::uint64_t memory_budget_bytes = 256ULL << 20;  ///< extra host memory during save and load
};

/// The behaviour of save_async() while the previous save is still running on any rank.
enum class WhenBusy {
  kWait,  ///< waits for the previous save (Stall::wait_seconds)
  kSkip,  ///< saves nothing; SaveTicket::was_skipped() is true
  kFail,  ///< throws kState
};

/// Saves in the background (Checkpointer::save_async).
struct AsyncOptions {
  WhenBusy when_busy = WhenBusy::kWait;
  /// Host memory for the snapshot, on each rank. save_async() gathers the bytes that do not fit from the program's own
  /// memory before it returns; with device memory such a save is synchronous. Unset: as much as a snapshot needs, which
  /// is the size of the rank's shards, less the replicas that other ranks provide.
  std::optional<std::uint64_t> max_snapshot_bytes;
  /// Limit of bytes that each rank gathers and writes in the background, so that the program's own messages and reads
  /// keep their share. 0: no limit.
  std::uint64_t max_bytes_per_s = 0;
  /// Processors of each node for the background work of all its ranks, as taskset writes them ("0-3,8"): spare ones, if
  /// the node has some. Empty: those of the thread that first calls save_async() or prepare_async().
  std::string cores;
  /// Rank-local, and may be set on some ranks only. Called once for each save whose ticket save_async() returns, unless
  /// the save was skipped: when the save has ended on this rank, in success or failure, just before SaveTicket::test()
  /// is true and wait() returns. The next save and the destructor of the Checkpointer wait for the callback.
  ///
  /// Called on Cairn's thread, which runs on the processors in `cores`; for a save that had to be synchronous, on the
  /// thread of save_async(), before that returns. May be called during MPI_Finalize. The callback must not use Cairn
  /// (not the ticket either) or MPI, and must not wait for a thread that is inside a call of Cairn: set a flag, wake
  /// the program, or copy what is needed. An exception is logged, and changes nothing about the save.
  std::function<void(const SaveEnd&)> on_done;
};

/// Set members by name (`Options options; options.files.block_bytes = ...`): later versions may add members and change
/// their order.
struct Options {
  EngineOptions engine;
  FileOptions files;
  Limits limits;
  Quantisation quantisation;
  LeaseOptions lease;
  AsyncOptions async;
  /// Checks of the state by a save: replicas that differ, stale sections, values that are not finite.
  Checks checks;
  /// Selections of tensors that training does not change. Checks::stale skips sections that have no other tensors.
  /// {{{"model"}, {}}} is a whole section, {{{}, {"vision.*"}}} a part of every section.
  std::vector<Selection> frozen;
  /// Whether a save takes unchanged files of `frozen` tensors from an earlier checkpoint: Report::reused_bytes. Tensors
  /// that changed all the same are written, with a warning.
  Reuse reuse = Reuse::kNever;
  /// The step of the root from which files are taken. Unset: the step that latest() would name.
  std::optional<std::uint64_t> reuse_step;
  /// Save only the tensors that one of these selections selects: {{{"adapter"}, {}}} is a section, {{{}, {"*lora*"}}}
  /// names. Such a checkpoint holds a part of a state and says so (StepInfo::part): latest() and load_latest() pass it
  /// over (but see LoadOptions::parts), and a load of any other tensor from it throws kNotFound with Missing::kPart.
  /// Empty: all tensors. A save throws kUsage if no tensor of any rank is selected.
  std::vector<Selection> save_only;
  /// Leave out the section "optimizer", as Megatron's option of this name does. Master weights are a section of their
  /// own, and are saved (but see Quantisation::remove_master_weight). The checkpoint holds a part, as with `save_only`.
  bool no_save_optim = false;
  /// With `save_only` or `no_save_optim`: the checkpoint that has the other tensors, to be named to whoever loads.
  std::optional<BaseCheckpoint> base;
  Waiting waiting;  ///< time limit for ranks that make no progress, and the reaction to it
  /// Name of the run: UTF-8, at most 1,024 bytes, recorded in the root and in every manifest. Empty: the root's name;
  /// a new root gets a random name (16 hexadecimal digits). A first save into a root with another name throws kState.
  std::string run_id;
  bool allow_other_run = false;  ///< save into another run's root, which then gets the name in `run_id`
  /// Replace a checkpoint of the same step, whole or damaged. Without this option a save replaces only checkpoints that
  /// lack a file, and void steps from which this saver went back. Even with this option, a save does not replace a
  /// directory that Cairn did not write or a newer Cairn wrote (kUsage), or that cannot be read at the moment (kIo).
  bool overwrite = false;
  /// As `overwrite`, but also replace directories that Cairn did not write or a newer Cairn wrote: all their content
  /// is removed.
  bool overwrite_foreign = false;
  ReadBack read_back = ReadBack::kOff;
  /// Before its first byte, a save compares its needs with what the root has: permission on every rank, the limits of
  /// file sizes on the ranks that write, and, on rank 0, free space, free inodes and quotas, as far as the system tells
  /// them. A save that cannot succeed is refused: kIo with errno ENOSPC, EDQUOT, EFBIG, EACCES, EROFS or EPERM, and
  /// figures in the message. On file systems that may store more than they report (btrfs, ZFS, FUSE, overlay, unknown
  /// ones), want of space is a warning. False: no such look; the system's own error comes when it comes.
  bool preflight = true;
  /// Rules that keep checkpoints, applied after each save into the root, when the new one is committed (in the
  /// background for asynchronous saves): Report::pruned. A failure to remove anything never fails the save, and is in
  /// Report::warnings.
  Retention retention;
  /// Load through symbolic links that lead out of a checkpoint's directory; otherwise they are refused. Links from a
  /// snapshot in a Hugging Face cache to the cache's blobs are always followed.
  bool follow_links = false;
  /// Where the index of a Hugging Face checkpoint and its files disagree, load exactly the tensors that the index
  /// lists, from the files that it names. Files and tensors that it does not list, and further copies of those that it
  /// lists, are ignored, with a warning that counts them; a listed tensor that is missing remains an error. Without
  /// this option such a checkpoint is kFormat, since it is unknown which of two saves is wanted.
  bool trust_index = false;
  /// Append a line about every save and load to <root>/cairn.log.jsonl, for `cairn ls` and other programs
  /// (src/format/FORMAT.md, "The log of a root"). Rank 0 writes it when the call is over, without an fsync. The log
  /// begins with the root's first save. If a line cannot be written (a full disk, a root that is read-only), the call
  /// has its result all the same, and there is one warning for each Checkpointer; none if only loads fail to write.
  bool run_log = true;
  EnvironmentOptions environment;  ///< what a save records about its environment, and a load compares
  /// Rank-local, and may be set on some ranks only. Called when a phase begins and ends, and at most ten times a second
  /// in between, on the thread of the call, or on Cairn's thread during an asynchronous save. The callback must not
  /// call this object or anything collective, since the other ranks wait for its return. An exception ends the reports
  /// of this call, with one warning; the call continues.
  std::function<void(const Progress&)> progress;
};

/// The ranks that see the directories of a checkpoint and can read its files.
enum class Sight {
  kAllRanks,  ///< every rank sees all directories, under the same names
  kEachRank,  ///< a rank sees some directories, as with local disks, and reads their files for all ranks
};

/// Options of one load. All of them must be the same on all ranks.
struct LoadOptions {
  Selection select;              ///< targets to load; all others stay as they are
  bool list_not_loaded = false;  ///< fill Report::not_loaded
  /// Convert F64, F32, F16 and BF16 into each other, and F8_E4M3 and F8_E5M2 into all four. Values are rounded to
  /// nearest, ties to even; values beyond the largest become infinite; NaN stays NaN. F64 is rounded once (torch rounds
  /// to F32 first). Without this option, a target with another dtype is kState.
  bool cast_floats = false;
  /// Patterns of names (as in Selection) of tensors whose targets may have another number of rows (size of the first
  /// dimension) than the checkpoint, such as a vocabulary padded to a multiple: "*embed_tokens*", "lm_head.weight". The
  /// pattern must match the names of an embedding's moments too, if they are loaded. The rows that both have are
  /// loaded. Memory of a target's further rows is left as it is: set it before the load, to zeros for example. Further
  /// rows of the checkpoint are ignored. Report::bytes counts loaded bytes only. All other sizes must be equal, and the
  /// dtype must have at least 8 bits; without a matching pattern, another number of rows is kState.
  std::vector<std::string> pad_rows = {};
  /// Leave targets of section "optimizer" as they are, as Megatron's option of this name does. Master weights are a
  /// section of their own, and are loaded.
  bool no_load_optim = false;
  /// Resume from a checkpoint of a part of a state (Options::save_only) as from a whole: load_latest() takes the one
  /// saved last, whole or not, and later saves descend from it. Without this option load_latest() passes it over, and
  /// load() reads it without resuming from it.
  bool parts = false;
};

}  // namespace cairn
