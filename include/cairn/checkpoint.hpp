// Save and load sharded training states: the C++ interface of Cairn.
//
// Every rank describes what it holds (or wants) of each global tensor: boxes in elements, and a pointer. Cairn plans,
// moves and writes the bytes. Calls say whether they are collective over the Checkpointer's communicator; collective
// calls throw the same cairn::Error (error.hpp) on every rank, and a failed save leaves every committed checkpoint
// whole. The table of calls is in README.md beside this file.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/box.hpp"
#include "cairn/dtype.hpp"
#include "cairn/error.hpp"
#include "cairn/memory.hpp"
#include "cairn/waiting.hpp"

namespace cairn {

/// A global tensor and the boxes of it that this rank holds or wants.
struct Shard {
  std::string section = "model";  ///< file set: "model", "optimizer", "master_weights", "adapter" or your own
  std::string name;               ///< UTF-8; unique in its section
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;  ///< of the whole tensor, in elements
  std::vector<Box> boxes;            ///< lie end to end in memory, each row-major; none: an empty shard
};

/// A shard to save. `data` must stay valid and unchanged until save() returns.
struct Source : Shard {
  const void* data = nullptr;
  Memory memory = Memory::kHost;
};

/// A shard to load into. dtype and shape must be those of the checkpoint: of moments that it holds as codes, F32 and
/// theirs.
struct Target : Shard {
  void* data = nullptr;
  Memory memory = Memory::kHost;
};

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

struct Options {
  std::string engine = "auto";                       ///< "auto", "direct", "mpiio" or "posix"
  std::uint64_t max_file_bytes = 5'000'000'000;      ///< tensor bytes per file before the next one begins
  std::uint64_t align_bytes = 4096;                  ///< data sections begin on multiples of this
  std::uint64_t block_bytes = 4ULL << 20;            ///< checksum unit
  std::uint64_t memory_budget_bytes = 256ULL << 20;  ///< extra host memory per rank during save and load
  std::uint64_t aggregators_per_node = 0;            ///< ranks that write and read; 0: by the file system, else all
  std::map<std::string, std::string> hints;          ///< passed to MPI-IO and recorded
  std::map<std::string, std::string> file_metadata = {{"format", "pt"}};  ///< `__metadata__` of every data file
  std::string run_id;                                                     ///< recorded in every manifest
  Quantisation quantisation;
  bool overwrite = false;  ///< replace an existing checkpoint of the same step
  ReadBack read_back = ReadBack::kOff;
  /// Load through symbolic links that lead out of a checkpoint's directory, which are refused otherwise. Links from a
  /// snapshot of a Hugging Face cache to its blobs never need it.
  bool follow_links = false;
  LeaseOptions lease;
  Waiting waiting;  ///< how long calls wait for ranks that make no progress, and what happens then
};

/// What travels with the tensors. Texts, files and metadata are taken from rank 0; the blob from every rank.
struct Extras {
  std::map<std::string, std::string> metadata;     ///< your own key-value pairs
  std::vector<std::filesystem::path> carry_files;  ///< config.json, tokenizer files ...: copied untouched
  std::map<std::string, std::string> carry_texts;  ///< file name -> content, e.g. {"trainer_state.json", "{...}"}
  std::vector<std::byte> rank_blob;                ///< this rank's RNG state or the like
  std::string layout;                              ///< recorded; informative
};

/// One phase of a save or load. Seconds are of the slowest and the fastest rank, bytes of all ranks together.
struct Phase {
  std::string name;
  double seconds_max = 0;
  double seconds_min = 0;
  std::uint64_t bytes = 0;
};

/// What a codec did to the moments of one tensor. Shares: 0.005 is half a percent.
struct CodingError {
  std::string section;
  std::string name;  ///< of the first moment
  std::string codec;
  std::uint64_t elements = 0;
  std::uint64_t elements_measured = 0;  ///< all of them, or a sample: then the errors are estimates
  double update_rms = 0;                ///< RMS of the error of m/(sqrt(v) + 1e-8) over the RMS of the update
  double update_max = 0;                ///< its largest error, over the same
  double root_rms = 0;                  ///< RMS of the relative error of sqrt(v), where v > 0
  double root_max = 0;
  double first_max = 0;  ///< largest absolute error of the first moment
  double second_max = 0;
};

struct Report {
  std::filesystem::path directory;
  std::uint64_t bytes = 0;  ///< of tensors
  std::uint64_t tensors = 0;
  std::uint64_t files = 0;
  std::string engine;
  std::string engine_reason;                        ///< why it was that one
  std::map<std::string, std::string> engine_hints;  ///< what MPI-IO says of the first file; empty without MPI-IO
  double seconds = 0;                               ///< whole call, slowest rank
  bool plan_reused = false;
  std::vector<Phase> phases;
  std::vector<std::string> warnings;
  std::vector<CodingError> coding_errors;  ///< of a save that asked for them, by section and name; on rank 0
  /// Tensors that q8 or q4 codes worse than its figures (src/quant/README.md), the worst first; on rank 0. One of
  /// `warnings` says so too. Without Quantisation::report or max_update_error they are found by a sample of the blocks.
  std::vector<CodingError> beyond_figures;
};

/// Saves into and loads from one root directory. Holds a duplicate of the communicator and the plan of the last save,
/// which an unchanged state uses again. One thread at a time. Destroy before MPI_Finalize, on all ranks.
///
/// Every call waits for the other ranks as long as any of them makes progress, and no longer than Options::waiting
/// without. What it throws then, what stays with MPI, and that the object is dead afterwards, says waiting.hpp.
/// Options, root and step must be the same on all ranks: else kUsage, naming the one that differs.
class Checkpointer {
 public:
  /// Collective. The root is created when missing. Without a limit on `options.waiting` a rank that does not come here
  /// is waited for for ever; with one it cannot be named.
  Checkpointer(MPI_Comm communicator, std::filesystem::path root, Options options = {});
  ~Checkpointer();
  Checkpointer(Checkpointer&&) noexcept;
  Checkpointer& operator=(Checkpointer&&) noexcept;

  /// Collective. Commits <root>/checkpoint-<step>, durable when it returns. Replicas (equal boxes on several ranks) are
  /// written once. Throws kState for a hole, an overlap or a contradiction, and when the root has another saver; kUsage
  /// for a wrong argument (also when the step exists and Options::overwrite is off), kIo when writing fails, kIntegrity
  /// when what was written reads back otherwise (Options::read_back); nothing becomes visible then. The first save may
  /// wait up to a lease time to see whether another saver is alive. Overwriting keeps the old checkpoint loadable until
  /// the new one has its name.
  Report save(std::uint64_t step, std::span<const Source> state, const Extras& extras = {});

  /// Collective. The step to resume from, or nothing: of the complete checkpoint that was saved last, unless people
  /// edited latest_checkpointed_iteration.txt to name another one. Steps that a run left behind by resuming from an
  /// earlier one are void and never the newest (src/format/FORMAT.md).
  [[nodiscard]] std::optional<std::uint64_t> latest();

  /// Collective. Reads every target from checkpoint-<step>, in any layout, checking block checksums on the way. Throws
  /// kNotFound for a missing checkpoint or tensor, kState when dtype or shape differ, kIntegrity when bytes are not
  /// what was written, kFormat when codes or scales are damaged. Moments are decoded, and weights made that were left
  /// out; codes and scales come by their stored names ("w.exp_avg@q8"). Targets are unspecified after an error. What
  /// this object saves later descends from the loaded step: steps beyond it become void with the next save. To look at
  /// a checkpoint without resuming from it, load it with another Checkpointer.
  Report load(std::uint64_t step, std::span<const Target> targets);

  /// Collective. What travelled with checkpoint-<step>; rank_blobs[r] is the blob of saving rank r, on every rank.
  struct LoadedExtras {
    std::map<std::string, std::string> metadata;
    std::map<std::string, std::string> carried;  ///< file name -> content, files up to 64 MiB
    std::vector<std::vector<std::byte>> rank_blobs;
    std::string layout;
  };
  LoadedExtras load_extras(std::uint64_t step);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cairn
