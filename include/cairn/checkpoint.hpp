// Save and load sharded training states: the C++ interface of Cairn.
//
// Every rank describes its part of each global tensor, held or wanted: boxes in elements, and a pointer. Cairn plans,
// moves and writes the bytes. Each call's comment tells whether it is collective over the Checkpointer's communicator.
// Collective calls throw the same cairn::Error (error.hpp) on every rank, and a failed save leaves every committed
// checkpoint intact. README.md in this folder has a table of the calls.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cairn/blob_mapping.hpp"
#include "cairn/box.hpp"
#include "cairn/dtype.hpp"
#include "cairn/error.hpp"
#include "cairn/memory.hpp"
#include "cairn/options.hpp"
#include "cairn/report.hpp"
#include "cairn/selection.hpp"
#include "cairn/tensor.hpp"
#include "cairn/ticket.hpp"

namespace cairn {

/// The place of a box in this rank's memory, in elements: row-major, with gaps if the strides leave any, such as the
/// ghost cells around a part of a grid. Saves do not read the gaps, and loads do not write them.
struct Placement {
  std::uint64_t offset = 0;  ///< elements from `data` to the box's first element
  /// Distance between neighbours in each dimension; empty: row-major without gaps. The innermost dimension that is
  /// longer than one element must have stride 1, and every other stride at least the span of the dimensions inside it
  /// (otherwise kUsage). Strides of dimensions with one element do not matter. Only for dtypes of 8 bits and more.
  std::vector<std::uint64_t> strides = {};
};

/// A global tensor, and its boxes that this rank holds or wants. Several shards of one rank may belong to the same
/// tensor if no two of their boxes share an element; otherwise kUsage, since the bytes of one box would be lost.
struct Shard {
  std::string section = "model";  ///< file set: "model", "optimizer", "master_weights", "adapter" or your own
  std::string name;               ///< UTF-8, not empty
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;  ///< shape of the whole tensor, in elements
  std::vector<Box> boxes;            ///< empty: an empty shard
  /// The place of each box; empty: end to end in memory, each row-major. Boxes of one target must not share memory;
  /// this is not checked, and the content is unspecified if they do.
  std::vector<Placement> placements = {};
};

/// A shard to save. `data` must stay valid and unchanged until save() returns. State (state.hpp) makes sources and
/// targets from one description.
struct Source : Shard {
  const void* data = nullptr;
  Memory memory = Memory::kHost;
  /// Size of the memory at `data` in bytes, as a check: kUsage if this is not the size of the boxes, or, with
  /// placements, less than the boxes reach. Unset: not checked.
  std::optional<std::uint64_t> data_bytes = {};
};

/// A shard to load into. dtype and shape must be those of the checkpoint; for moments stored as codes, F32 and the
/// shape of the moment. With LoadOptions::cast_floats the dtype may differ, with LoadOptions::pad_rows the number of
/// rows.
struct Target : Shard {
  void* data = nullptr;
  Memory memory = Memory::kHost;
  bool optional = false;  ///< leave the memory as it is if the checkpoint lacks the tensor (Report::missing)
  std::optional<std::uint64_t> data_bytes = {};  ///< as Source::data_bytes
};

/// Data saved with the tensors. Rank 0 gives strings, files and metadata; every rank gives its blob.
struct Extras {
  std::map<std::string, std::string> metadata;  ///< your own key-value pairs
  /// Numbers by which checkpoints are compared, such as {"loss", 2.31} (Retention::keep_best). NaN and infinities are
  /// not recorded; the report has a warning.
  std::map<std::string, double> metrics;
  std::vector<std::filesystem::path> carry_files;  ///< copied unchanged, of any size: config.json, tokenizer files ...
  std::map<std::string, std::string> carry_texts;  ///< file name -> content, e.g. {"trainer_state.json", "{...}"}
  std::vector<std::byte> rank_blob;  ///< this rank's RNG state or the like; its size can vary between saves
  std::string layout;                ///< layout of the saving ranks, in words; recorded, but no load needs it
};

/// A checkpoint in a root.
struct StepInfo {
  std::uint64_t step = 0;
  std::filesystem::path directory;
  bool complete = false;  ///< its manifest is readable, and all files named in it exist with the right sizes
  bool is_void = false;   ///< left by a run that resumed from an earlier step; used to resume only if there is no
                          ///< other step
  std::string problem;    ///< reason why the checkpoint is incomplete or void
  /// Empty for a whole state. The tensors that a checkpoint of a part holds (Options::save_only), and its base, in
  /// words: "sections adapter; base: step 1000".
  std::string part;
  std::uint64_t bytes = 0;  ///< size of the data files of a complete checkpoint
  std::uint64_t files = 0;  ///< number of data files of a complete checkpoint
};

/// A tensor of a checkpoint, as load() returns it.
struct TensorInfo : Tensor {
  std::string section;
  std::string codec;  ///< codec of a moment stored as codes, such as "q8"; empty: the tensor is stored as it is, or is
                      ///< made from another tensor
};

/// Makes the targets of a load once the tensors of the step are known: `tensors` is Checkpointer::tensors() of the
/// step, restricted to LoadOptions::select. Needed if tensor sizes vary between steps.
using TargetsOf = std::function<std::vector<Target>(std::uint64_t step, std::span<const TensorInfo> tensors)>;

/// Receives the bytes of a carried file in order, at most 4 MiB at a time. A piece is valid only during the call.
using CarriedSink = std::function<void(std::span<const std::byte> piece)>;

/// Saves into and loads from one root directory. Holds a duplicate of the communicator and the plan of the last save,
/// which is used again for an unchanged state. Only one thread may use the object at a time. A process can have only
/// one saver per root. Destroy the object before MPI_Finalize, on all ranks; otherwise MPI_Finalize finishes a save
/// that is still running, and later calls throw kState. Every call waits for the other ranks as long as any of them
/// makes progress, and at most Options::waiting without progress; then the object is dead (waiting.hpp). Options, root
/// and step must be the same on all ranks; otherwise calls throw kUsage, naming the first that differs.
class Checkpointer {
 public:
  /// Collective. Creates the root if it is missing, and makes a relative path absolute. If a rank does not make this
  /// call, the others wait up to the limit in `options.waiting`; the error cannot name the missing rank. Throws kUsage
  /// for options with which no save can work, whatever the state.
  Checkpointer(MPI_Comm communicator, std::filesystem::path root, Options options = {});
  ~Checkpointer();
  /// A moved-from object can only be assigned to or destroyed.
  Checkpointer(Checkpointer&&) noexcept;
  Checkpointer& operator=(Checkpointer&&) noexcept;

  /// Rank-local. The absolute path of the root.
  [[nodiscard]] const std::filesystem::path& root() const;

  /// Collective. Commits <root>/checkpoint-<step>, durable on return. Replicas (equal boxes on several ranks) are
  /// written once. When it throws, nothing becomes visible:
  ///   kState      the state has a hole, an overlap or a contradiction; the root has another saver, or belongs to
  ///               another run (Options::run_id)
  ///   kUsage      a wrong argument; the step's name is taken and may not be replaced (Options::overwrite); a size or
  ///               name that no load would accept (src/format/FORMAT.md, "Limits")
  ///   kIo         writing failed
  ///   kIntegrity  the written bytes read back differently (Options::read_back)
  /// The first save may wait up to a lease time to see whether another saver is alive. An overwritten checkpoint stays
  /// loadable until the new one has its name.
  Report save(std::uint64_t step, std::span<const Source> state, const Extras& extras = {});
  /// As above, for a list in braces: save(1, {{shard, pointer}}).
  Report save(std::uint64_t step, std::initializer_list<Source> state, const Extras& extras = {}) {
    return save(step, std::span(state.begin(), state.size()), extras);
  }

  /// Collective. As save(), but exchange, writing and commit run in one of Cairn's threads, on a separate communicator.
  /// Returns when the state has been copied; bytes beyond AsyncOptions::max_snapshot_bytes have been gathered.
  /// The state is saved as it was at the call. Sources and everything that `extras` refers to may change or be freed on
  /// return, except carried files, which must stay until the ticket is done. Moments in host memory are also coded in
  /// the background, which needs a snapshot of the whole state.
  ///
  /// Throws the errors that save() finds before it has a plan: kUsage and kState for a wrong state. Later errors, such
  /// as an existing step or another saver of the root, are thrown by SaveTicket::wait(); they do not affect the next
  /// save, whose report names them. One save at a time: AsyncOptions::when_busy. Other calls of this object are allowed
  /// during a save and see committed checkpoints. save(), prepare_async(), release_memory() and the destructor wait for
  /// the save. Windows of a load during a save are in addition to the memory budget.
  ///
  /// MPI must have been initialised with MPI_THREAD_MULTIPLE. Without that level, or with engine "mpiio", whose calls
  /// cannot be interrupted, the save is complete on return, and Report::warnings has the reason.
  ///
  /// AsyncOptions::on_done tells the program when the save has ended.
  [[nodiscard]] SaveTicket save_async(std::uint64_t step, std::span<const Source> state, const Extras& extras = {});
  [[nodiscard]] SaveTicket save_async(std::uint64_t step, std::initializer_list<Source> state,
                                      const Extras& extras = {}) {
    return save_async(step, std::span(state.begin(), state.size()), extras);
  }

  /// Collective. Plans, and allocates the memory for snapshots of this state, so that the first save_async() is as
  /// fast as later ones. Throws the errors of save_async(), and kIo when memory is short.
  void prepare_async(std::span<const Source> state);
  void prepare_async(std::initializer_list<Source> state) { prepare_async(std::span(state.begin(), state.size())); }

  /// Collective. The step to resume from, if any: the complete checkpoint that was saved last, unless a person edited
  /// latest_checkpointed_iteration.txt to name another one. Void steps (left behind by a run that resumed from an
  /// earlier one; src/format/FORMAT.md) are returned only when there is no other. An empty result means that there is
  /// no checkpoint. Throws kIo, kFormat or kIntegrity, naming the checkpoint, if one that may be the newest cannot be
  /// read, or if it has lost files and no other checkpoint is complete.
  [[nodiscard]] std::optional<std::uint64_t> latest();

  /// Collective. Every checkpoint of the root in order of step, including incomplete ones; the same on all ranks. The
  /// committed checkpoint of a step comes first, then the step's *.partial directories, which a save is writing or a
  /// crash left. Throws kIo if the root cannot be read; a fault of one checkpoint is described in its `problem`. Rank 0
  /// reads every manifest and checks every file's size; no data is read.
  [[nodiscard]] std::vector<StepInfo> steps();

  /// Collective. The tensors of checkpoint-<step> as load() returns them, in catalog order: sections model, optimizer,
  /// master_weights, adapter, then others by name; within a section by name, numbers compared as numbers. Moments are
  /// listed decoded (F32, under their names). Weights that the save left out are listed too; codes, scales and the
  /// ranks' blobs are not. `selection` may differ between ranks. Throws as load(). Opens the checkpoint: the ranks
  /// share the reading of its headers.
  [[nodiscard]] std::vector<TensorInfo> tensors(std::uint64_t step, const Selection& selection = {});

  /// Collective. Reads every target from checkpoint-<step>, in any layout, and verifies block checksums. Throws kIo, or
  ///   kNotFound   a missing checkpoint or tensor; LoadOptions::select selects no target of any rank. Error::missing()
  ///               tells which
  ///   kState      a dtype or shape differs from the checkpoint's
  ///   kUsage      a wrong argument; options that differ between ranks
  ///   kIntegrity  the bytes are not those that were written; a checkpoint of Cairn lacks cairn.json
  ///   kFormat     a file that breaks the rules of its format; damaged codes or scales
  /// Targets are unspecified after an error. Moments are decoded, and omitted weights are restored; codes and scales
  /// can be loaded by their stored names ("w.exp_avg@q8"). Later saves of this object descend from the loaded step:
  /// steps saved after it become void with the next save. To look at a checkpoint without resuming from it, load it
  /// with another Checkpointer.
  Report load(std::uint64_t step, std::span<const Target> targets, const LoadOptions& options = {});
  /// As above, for a list in braces: load(1, {{shard, pointer}}).
  Report load(std::uint64_t step, std::initializer_list<Target> targets, const LoadOptions& options = {}) {
    return load(step, std::span(targets.begin(), targets.size()), options);
  }

  /// Collective. Loads the newest whole checkpoint, to resume a run. Begins with the step that latest() names; if that
  /// checkpoint is damaged, all ranks try the one saved before it, and so on. Report::step is the loaded step;
  /// Report::skipped, Report::warnings and the log name the steps passed over and their damage.
  ///
  /// A checkpoint is damaged if one of its files is missing, truncated, unreadable, malformed, part of another
  /// checkpoint, or differs from its checksums: kIntegrity, kFormat, and kIo and kNotFound about its own files. Only
  /// the data read is checked: file sizes, manifest, block table, headers, and the blocks of the targets; `cairn verify
  /// --all` reads everything. Incomplete checkpoints newer than latest() are also passed over as damaged; if a person
  /// named a damaged step in the latest file, loading begins there. Void steps are tried only if no other step is left.
  ///
  /// All other errors are thrown at once, as by load(): wrong arguments, a tensor that is missing or has another dtype
  /// or shape, lack of memory or file descriptors, lost ranks, a checkpoint of a newer Cairn, and system errors that
  /// may pass (no permission, a server that does not answer: src/os/errno_class.cpp). If the root has no step, throws
  /// kNotFound with Missing::kAnyStep and the root as path(): there is nothing to resume. If every step is damaged,
  /// throws the last error, naming all steps.
  ///
  /// Later saves of this object descend from the loaded step, as after load(): with the next save the steps passed over
  /// become void, are never the newest again, and may be saved again. A checkpoint with a damaged cairn.json is then
  /// renamed to checkpoint-<step>.damaged-<16 hexadecimal digits>.
  ///
  /// Targets hold the bytes of the loaded step. An optional target that the step lacks (Report::missing) stays as it
  /// is, but is unspecified if a checkpoint that was passed over may have had it.
  Report load_latest(std::span<const Target> targets, const LoadOptions& options = {});
  Report load_latest(std::initializer_list<Target> targets, const LoadOptions& options = {}) {
    return load_latest(std::span(targets.begin(), targets.size()), options);
  }

  /// Collective. load_latest() for tensors whose sizes vary between steps, such as particles and growing tables. `make`
  /// is called on each rank, once for every step that is tried and can be opened, and makes the targets of that step;
  /// if that step turns out to be damaged, `make` is called again for an older one. The memory of the last targets
  /// must stay valid until the call returns. `make` must not call this object or anything collective. Its exceptions
  /// end the call and never count as damage: an Error is thrown on all ranks; any other exception becomes kInternal.
  Report load_latest(const TargetsOf& make, const LoadOptions& options = {});

  /// The extras of a checkpoint. All but `rank_blob` and `blobs` are the same on all ranks.
  struct LoadedExtras {
    std::map<std::string, std::string> metadata;
    std::map<std::string, double> metrics;
    std::string layout;
    std::map<std::string, std::uint64_t> carried;  ///< name -> size in bytes, for load_carried()
    std::uint64_t ranks = 0;                       ///< number of ranks that saved the checkpoint; 0: unknown
    std::uint64_t rank_blobs = 0;                  ///< number of saving ranks; 0 if no rank had a blob
    std::vector<std::byte> rank_blob;  ///< blob of the saving rank with this rank's number, if the mapping assigns it
                                       ///< to this rank
    std::map<std::uint64_t, std::vector<std::byte>> blobs;  ///< by saving rank: the blobs that kRank0 and kChosen
                                                            ///< assign to this rank
  };
  /// Collective. Throws as load(). Opens the checkpoint, looks up every carried file, and reads each rank's blobs. If
  /// the numbers of saving and loading ranks differ and there are blobs, `mapping` must assign them (otherwise kState).
  /// The kind of mapping must be the same on all ranks (otherwise kUsage).
  [[nodiscard]] LoadedExtras load_extras(std::uint64_t step, const BlobMapping& mapping = {});

  /// Collective. The blob of a saving rank, below LoadedExtras::rank_blobs; each rank names the blob that it wants, or
  /// none, and receives only that blob. Throws kState on all ranks if one of them names a rank that did not save,
  /// kNotFound when no rank had a blob, otherwise as load().
  [[nodiscard]] std::vector<std::byte> load_rank_blob(std::uint64_t step, std::optional<std::uint64_t> saving_rank);

  /// Collective. Rank 0 reads a carried file of any size piece by piece and passes it to the sinks of all ranks; a sink
  /// may be empty. Needs 4 MiB of memory on each rank. Throws kNotFound for a name that is not in
  /// LoadedExtras::carried, kIo if reading fails, and kIntegrity if the checksum is wrong, which is known only after
  /// the whole file has been passed on. After any error the bytes that the sinks received are invalid. An Error thrown
  /// by a sink is thrown on all ranks; any other exception becomes kInternal.
  void load_carried(std::uint64_t step, const std::string& name, const CarriedSink& sink);

  /// Collective, since the ranks of a node share the windows. Frees the memory kept for later calls: windows and bounce
  /// buffers (together up to Limits::memory_budget_bytes), snapshots, pinned memory for copies from devices, and the
  /// plan of the last save. The next save plans again (Report::plan_reused is false), and the next call that needs
  /// windows allocates them again. Without this call, one set of windows is kept, as large as the largest call needed.
  void release_memory();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cairn
