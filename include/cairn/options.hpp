// The options of a Checkpointer, in groups. All of them must be the same on all ranks, but for the callbacks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cairn/checks.hpp"
#include "cairn/report.hpp"
#include "cairn/selection.hpp"
#include "cairn/waiting.hpp"

namespace cairn {

/// How a save makes the state smaller, and a load gives it back whole. Moments of Adam are recognised by their names:
/// "exp_avg" and "exp_avg_sq", or "moment1_0" and "moment2_0". Codecs and their errors: src/quant/README.md.
struct Quantisation {
  std::map<std::string, std::string> codecs;  ///< section -> "q8", "q4", "paddle-o1", "paddle-o2" or "off"
  bool disable_ckpt_quant = false;            ///< save as if `codecs` were empty
  double max_update_error = 0;  ///< above 0: refuse a save that makes a tensor's updates wrong by more (RMS
                                ///< of the error of m/(sqrt(v) + 1e-8) over the RMS of the update)
  bool report = false;          ///< fill Report::coding_errors
  bool remove_master_weight =
      false;  ///< save no master weights whose model weights are saved; loads make them from those
  bool skip_save_model_weight = false;    ///< save no model weights whose master weights are saved; loads round those
  bool master_weight_compatible = false;  ///< load master weights from the model's where the checkpoint has none
  bool paddle_reciprocals = false;        ///< decode paddle-o1 and -o2 as paddlepaddle 2.6 to 3.2 did
};

/// A root has one saver: a Checkpointer holds its lease from its first save to its destruction, and renews it.
struct LeaseOptions {
  double seconds = 60;  ///< a saver that has not renewed its lease for so long may be taken for dead
  /// How long a first save waits for another saver that lives, before it fails. Unset: not at all, but 1,800 s in a job
  /// that the batch system has started again, or whose earlier step is that saver.
  std::optional<double> wait_seconds;
};

/// Whether a save reads back what it wrote, after the fsync and before the commit, and compares it with the checksums
/// that were made before the writing: for storage that reports bytes as written which it does not keep. A save in which
/// any differ is refused (kIntegrity, naming file, block and tensors), and the checkpoint before it stays the newest.
///
/// Read is past the page cache, as `cairn verify` does (a warning in the report says where that is not to be had),
/// through a new descriptor: data files by all ranks, evenly, each block by a rank of another node than those of the
/// rank that would write it when bytes are assigned evenly (with ranks placed node by node; on one node by another rank
/// where there is one); carried files, indexes, cairn.blocks and cairn.json by rank 0. What a storage server remembers
/// is out of reach. The latest file is not read. kAll costs about the time of a verify. kSample reads the first and the
/// last block of every data file and, of the others, one in 16, other ones with each step: block b of file f, counted
/// from 0 in the order of cairn.blocks, when a hash of (step, f, b) is divisible by 16 (src/checkpoint/read_back.hpp);
/// small files are read whole.
enum class ReadBack { kOff, kSample, kAll };

/// How bytes reach the storage.
struct EngineOptions {
  std::string name = "auto";                 ///< "auto", "direct", "mpiio" or "posix"
  std::uint64_t aggregators_per_node = 0;    ///< ranks that write and read; 0: by the file system, else all
  std::map<std::string, std::string> hints;  ///< passed to MPI-IO and recorded
};

/// The files of a checkpoint.
struct FileOptions {
  std::uint64_t max_bytes = 5'000'000'000;  ///< tensor bytes per file before the next one begins
  std::uint64_t align_bytes = 4096;         ///< data sections begin on multiples of this: a power of two, 8 to 64 MiB
  std::uint64_t block_bytes = 4ULL << 20;   ///< checksum unit: 1 byte to 1 GiB
  /// `__metadata__` of every data file: UTF-8. Keys that begin with "cairn." are Cairn's own, and "DCP_SHARDING_INFO" is
  /// torch's (kUsage).
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  /// Whose files a save writes, in the words of `cairn convert --to`. Empty, or "hf": Hugging Face's. "paddlenlp" and
  /// "paddleformers": those from which the trainer of that PaddlePaddle package resumes, with its indexes and small files;
  /// Cairn loads them as all others. Tensors keep the names and the order of dimensions that the program gives them, which
  /// must be the package's; a save throws kUsage, naming what its loader would not find. Of Extras::metadata it takes
  /// "scheduler" (JSON of last_epoch and last_lr) and "paddle" (what load_extras() gave of an earlier one, which says how
  /// often moments went through codes), unless scheduler.pdparams is carried along. It decides "format" of `metadata`.
  /// Rules: src/interop/README.md, "Written". Conversions and staging files take no notice of it.
  std::string form;
  /// Permission bits of files, whatever the umask; directories get x where r is, and keep the set-group-ID bit. 0660,
  /// with a group, lets other members of it load, save and take the root over. Of all that Cairn makes: the root and
  /// directories above it where they are missing, checkpoints with all that is in them, staging files, the latest file,
  /// `.cairn`. Unset: as the umask says. What is there already stays as it is. kUsage for other bits, and without 0600.
  std::optional<unsigned> mode;
  /// Its name or number, of the same. Empty: as the system does. kUsage for one that is unknown, or that this process is
  /// not in (root may give any), before anything is written.
  std::string group;
};

/// What calls may take of the machine, on each rank.
struct Limits {
  std::uint64_t memory_budget_bytes = 256ULL << 20;  ///< extra host memory during save and load
};

/// What save_async() does while the save before it is still under way on any rank.
enum class WhenBusy {
  kWait,  ///< waits for it (Stall::wait_seconds)
  kSkip,  ///< saves nothing; the ticket says so
  kFail,  ///< throws kState
};

/// Saves that go on behind the program (Checkpointer::save_async).
struct AsyncOptions {
  WhenBusy when_busy = WhenBusy::kWait;
  /// Of host memory for the snapshot, on each rank. What does not fit is gathered from the program's own memory while
  /// save_async() waits for it; with device memory such a save is synchronous. Unset: as much as a snapshot needs,
  /// which is what the rank hands over: its shards, less what replicas on other ranks hand over in its place.
  std::optional<std::uint64_t> max_snapshot_bytes;
  /// That each rank gathers and writes a second in the background, so that the program's own messages and reads keep
  /// their share. 0: as fast as it goes.
  std::uint64_t max_bytes_per_s = 0;
  /// Processors of each node for the background work of all its ranks, as taskset writes them ("0-3,8"): spare ones, if
  /// the node has some. Empty: those that the thread which makes the Checkpointer's first asynchronous save may use.
  std::string cores;
};

/// Name the members that you set (`Options options; options.files.block_bytes = ...`): groups and members are added, and
/// their order may change.
struct Options {
  EngineOptions engine;
  FileOptions files;
  Limits limits;
  Quantisation quantisation;
  LeaseOptions lease;
  AsyncOptions async;
  /// What a save looks for in the state: replicas that differ, stale sections, values that are not finite.
  Checks checks;
  /// Tensors that training does not change: those that any of these selects. Checks::stale passes over sections that have
  /// no others. {{{"model"}, {}}} is a whole section, {{{}, {"vision.*"}}} a part of all.
  std::vector<Selection> frozen;
  Waiting waiting;  ///< how long calls wait for ranks that make no progress, and what happens then
  /// Name of the run: UTF-8, at most 1,024 bytes, recorded in the root and in every manifest. Empty: the name that the
  /// root has; a root without one gets one that is made up (16 hexadecimal digits). A first save into a root that has
  /// another name throws kState naming both.
  std::string run_id;
  bool allow_other_run = false;  ///< save into another run's root; from then on its name is `run_id`
  /// Replace a checkpoint of the same step, whole or damaged. Without it only those go that this saver went back from
  /// (void steps), or that lack a file. What is not Cairn's, or a newer Cairn's, stays with it, too (kUsage), and so does
  /// what cannot be read just now (kIo).
  bool overwrite = false;
  /// As `overwrite`, and also replace what is not Cairn's, or a newer Cairn's: all that is in that directory is deleted.
  bool overwrite_foreign = false;
  ReadBack read_back = ReadBack::kOff;
  /// Load through symbolic links that lead out of a checkpoint's directory, which are refused otherwise. Links from a
  /// snapshot of a Hugging Face cache to its blobs never need it.
  bool follow_links = false;
  /// Rank-local, and may be set on some ranks only: called on the thread of the call, of an asynchronous save on Cairn's
  /// own, when a phase begins and when it
  /// has ended, and in between at most ten times a second. It must not call this object again or anything collective,
  /// since the other ranks wait for its return. What it throws ends there, as one warning, and this call of Cairn's goes
  /// on without it.
  std::function<void(const Progress&)> progress;
};

/// Who sees the directories of a checkpoint, and so may read its files.
enum class Sight {
  kAllRanks,  ///< every rank sees all of them, under the same names
  kEachRank,  ///< a rank sees some, as with disks of the machines; it reads those files for all ranks
};

/// Of one load. All of them must be the same on all ranks.
struct LoadOptions {
  Selection select;              ///< of the targets: the others are not looked at, and stay as they are
  bool list_not_loaded = false;  ///< fill Report::not_loaded
  /// Load F64, F32, F16 and BF16 into a target of another one of them, and F8_E4M3 and F8_E5M2 into all of them: each
  /// value to the nearest one, ties to even, above the largest to infinity; NaN stays NaN. F64 is rounded once (torch
  /// rounds it to F32 first). Off, a target of another dtype than the tensor's is kState.
  bool cast_floats = false;
};

}  // namespace cairn
