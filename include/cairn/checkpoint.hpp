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
#include <functional>
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

/// Where a box lies in this rank's memory, in elements: row-major, with gaps where the strides leave some, such as the
/// ghost cells around a part of a grid. What is in a gap is neither read by a save nor written by a load.
struct Placement {
  std::uint64_t offset = 0;  ///< of the box's first element, from `data`
  /// How far apart neighbours in each dimension lie; none: row-major without gaps. The innermost dimension that is longer
  /// than one element has stride 1, every other one at least the span of the dimensions inside it (kUsage otherwise).
  /// The stride of a dimension of one element does not matter. For dtypes of 8 bits and more.
  std::vector<std::uint64_t> strides = {};
};

/// A global tensor and the boxes of it that this rank holds or wants. Several shards of one rank may be of the same
/// tensor when no two of their boxes have a common element; kUsage otherwise, since one would be lost.
struct Shard {
  std::string section = "model";  ///< file set: "model", "optimizer", "master_weights", "adapter" or your own
  std::string name;               ///< UTF-8, not empty
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;  ///< of the whole tensor, in elements
  std::vector<Box> boxes;            ///< none: an empty shard
  /// Where each of `boxes` lies; none: end to end in memory, each row-major. Boxes of one target must not share memory:
  /// nobody looks, and what is there afterwards is unspecified.
  std::vector<Placement> placements = {};
};

/// A shard to save. `data` must stay valid and unchanged until save() returns.
struct Source : Shard {
  const void* data = nullptr;
  Memory memory = Memory::kHost;
};

/// A shard to load into. dtype and shape must be those of the checkpoint: of moments that it holds as codes, F32 and
/// theirs. With LoadOptions::cast_floats the dtype may be another one.
struct Target : Shard {
  void* data = nullptr;
  Memory memory = Memory::kHost;
  bool optional = false;  ///< where the checkpoint has nothing of its name, the memory stays as it is (Report::missing)
};

/// What travels with the tensors. Texts, files and metadata are taken from rank 0; the blob from every rank.
struct Extras {
  std::map<std::string, std::string> metadata;     ///< your own key-value pairs
  std::vector<std::filesystem::path> carry_files;  ///< config.json, tokenizer files ...: of any size, copied untouched
  std::map<std::string, std::string> carry_texts;  ///< file name -> content, e.g. {"trainer_state.json", "{...}"}
  std::vector<std::byte> rank_blob;  ///< this rank's RNG state or the like; of another size in every save, if you like
  std::string layout;                ///< recorded; informative
};

/// A checkpoint of a root.
struct StepInfo {
  std::uint64_t step = 0;
  std::filesystem::path directory;
  bool complete = false;    ///< its manifest can be read, and every file that it names is there and has its size
  bool is_void = false;     ///< left behind by a run that went on from an earlier step: the last to resume from
  std::string problem;      ///< why it is not complete, or why it is void
  std::uint64_t bytes = 0;  ///< of its data files; of a complete one
  std::uint64_t files = 0;  ///< data files; of a complete one
};

/// A tensor of a checkpoint as a load gives it.
struct TensorInfo : Tensor {
  std::string section;
  std::string codec;  ///< it is a moment that is stored coded: "q8" ...; empty: stored as it is, or made of another one
};

/// Makes the targets of a load when it is known what there is: `tensors` are those of the step, as
/// Checkpointer::tensors() lists them, which LoadOptions::select selects. For tensors whose sizes vary between steps.
using TargetsOf = std::function<std::vector<Target>(std::uint64_t step, std::span<const TensorInfo> tensors)>;

/// Takes the bytes of a carried file in order, at most 4 MiB at a time, which are gone when it returns.
using CarriedSink = std::function<void(std::span<const std::byte> piece)>;

/// Saves into and loads from one root directory. Holds a duplicate of the communicator and the plan of the last save,
/// which an unchanged state uses again. One thread at a time. Destroy before MPI_Finalize, on all ranks; MPI_Finalize
/// finishes a save that is under way first, and later calls throw kState. A process has one saver of a root.
/// Every call waits for the other ranks as long as any of them makes progress, and no longer than Options::waiting
/// without. What it throws then, what stays with MPI, and that the object is dead afterwards, says waiting.hpp.
/// Options, root and step must be the same on all ranks: else kUsage, naming the one that differs.
class Checkpointer {
 public:
  /// Collective. The root is created when missing; a relative one is that of the current directory now. Without a limit
  /// on `options.waiting` a rank that does not come here is waited for for ever; with one it cannot be named. Throws kUsage
  /// for options that no save can go by, whatever the state.
  Checkpointer(MPI_Comm communicator, std::filesystem::path root, Options options = {});
  ~Checkpointer();
  /// One that was moved from can be assigned to or destroyed, and nothing else.
  Checkpointer(Checkpointer&&) noexcept;
  Checkpointer& operator=(Checkpointer&&) noexcept;

  /// Rank-local. Absolute, as errors name it: one of kind kNotFound with this path() says that there is nothing to resume.
  [[nodiscard]] const std::filesystem::path& root() const;

  /// Collective. Commits <root>/checkpoint-<step>, durable when it returns. Replicas (equal boxes on several ranks) are
  /// written once. Throws kState for a hole, an overlap or a contradiction, and when the root has another saver, or is
  /// another run's (Options::run_id); kUsage for a wrong argument (also when something has the step's name and may not be
  /// replaced: Options::overwrite; and for what no load would open: src/format/FORMAT.md, "Limits"), kIo when writing
  /// fails, kIntegrity when what was written reads back otherwise (Options::read_back); nothing becomes visible then. The
  /// first save may wait up to a lease time to see whether another saver is alive. Overwriting keeps the old checkpoint
  /// loadable until the new one has its name.
  Report save(std::uint64_t step, std::span<const Source> state, const Extras& extras = {});

  /// Collective. As save(), but for what happens behind the program: it returns when the state has been copied (or, of what
  /// AsyncOptions::max_snapshot_bytes has no room for, written), and exchange, writing and commit go on in a thread of
  /// Cairn's, on a communicator of its own. What is saved is the state as it was at the call. Sources, and what `extras`
  /// refers to, may change and go when it returns; carried files must stay until the ticket is done. Moments in host
  /// memory are coded in the background as well, which takes a snapshot of the whole state.
  ///
  /// Throws what save() throws before there is a plan: kUsage and kState for a wrong state. What goes wrong later, also a
  /// step that exists, or another saver of the root, is thrown by SaveTicket::wait(); it hinders no later save, whose
  /// report names it. One save at a time: AsyncOptions::when_busy. Other calls of this object may be made meanwhile: they
  /// see what is committed. save(), release_memory() and the destructor wait for it; a load's windows are then on top of
  /// the memory budget.
  ///
  /// MPI must have been initialised with MPI_THREAD_MULTIPLE; where it was not, and with engine "mpiio", whose calls cannot
  /// be left, the save is done when the call returns, and Report::warnings says why.
  [[nodiscard]] SaveTicket save_async(std::uint64_t step, std::span<const Source> state, const Extras& extras = {});

  /// Collective. Plans and makes the memory of snapshots of such a state, so that the first save_async() takes no longer than
  /// the others. Throws as save_async(), and kIo when memory is short.
  void prepare_async(std::span<const Source> state);

  /// Collective. The step to resume from, or nothing: of the complete checkpoint that was saved last, unless people
  /// edited latest_checkpointed_iteration.txt to name another one. Steps that a run left behind by resuming from an
  /// earlier one are void (src/format/FORMAT.md), and named only when there is no other. "Nothing" means that there is
  /// nothing: a checkpoint that may be the newest and cannot be read is thrown, naming it (kIo, kFormat or kIntegrity), and so
  /// is one that has lost files where no other is complete.
  [[nodiscard]] std::optional<std::uint64_t> latest();

  /// Collective. Every checkpoint of the root in order of step, the same on all ranks: also those that are not complete,
  /// and, behind the committed one of their step, directories (*.partial) that a save is writing or a crash left. Throws
  /// kIo when the root cannot be read; what is wrong with one checkpoint is its `problem`. Rank 0 reads every manifest
  /// and looks at every file; no data is read.
  [[nodiscard]] std::vector<StepInfo> steps();

  /// Collective. The tensors that load() gives of checkpoint-<step>, in catalog order: sections model, optimizer,
  /// master_weights, adapter, then others by name; in a section by name, numbers as numbers. Moments stand decoded, F32
  /// under their names, and weights that were left out are there; codes, scales and the ranks' blobs are not. Every rank
  /// gets those that its own `selection` selects; the rest is the same on all. Throws as load(). Costs opening the
  /// checkpoint: all ranks read its headers side by side.
  [[nodiscard]] std::vector<TensorInfo> tensors(std::uint64_t step, const Selection& selection = {});

  /// Collective. Reads every target from checkpoint-<step>, in any layout, checking block checksums on the way. Throws
  /// kNotFound for a missing checkpoint or tensor, and when LoadOptions::select selects no target of any rank, kState
  /// when dtype or shape differ, kUsage when the options differ between ranks, kIntegrity when bytes are not what was
  /// written, and for a checkpoint of Cairn's without cairn.json, kFormat when codes or scales are damaged. Moments are
  /// decoded, and weights made that were left out; codes and scales come by their stored names ("w.exp_avg@q8"). Targets
  /// are unspecified after an error. What this object saves later descends from the loaded step: what was saved after it
  /// becomes void with the next save. To look at a checkpoint without resuming from it, load it with another Checkpointer.
  Report load(std::uint64_t step, std::span<const Target> targets, const LoadOptions& options = {});

  /// Collective. For a run that resumes: load() of the newest checkpoint that is whole. It begins with the step that
  /// latest() names; where that one is damaged, all ranks go back to the one saved before it, and so on. Report::step is
  /// what was loaded; Report::skipped, Report::warnings and the log say which ones were passed over, and what is wrong
  /// with them.
  ///
  /// A checkpoint is damaged when a file of it is missing, cut off or another one's, breaks its format, cannot be read, or
  /// differs from its checksums: kIntegrity, kFormat, and kIo and kNotFound about its own files. That is found in what is
  /// read: sizes of files, manifest, block table, headers, and the blocks of the targets; `cairn verify --all` reads
  /// everything. What is newer than latest() says and not complete is passed over as damaged, too; where people named a
  /// damaged step in the latest file, it begins there. Void steps are tried when no other is left.
  ///
  /// All other errors are thrown at once, as by load(): a wrong call, a tensor that the checkpoint does not have or has
  /// in another dtype or shape, no memory or file descriptors, lost ranks, a checkpoint of a newer Cairn, and errors of
  /// the system that may pass (no permission, a server that does not answer: src/os/errno_class.cpp). Throws kNotFound,
  /// path() being the root, when there is no step in the root; when every one is damaged, the last error, naming all.
  ///
  /// What this object saves later descends from the loaded step, as after load(): with the next save those passed over
  /// become void, are never the newest again, and their steps may be saved again. One whose cairn.json is damaged is then
  /// renamed to checkpoint-<step>.damaged-<16 digits>.
  ///
  /// Targets hold the bytes of the loaded step. An optional target that it does not have (Report::missing) is unspecified
  /// when something was passed over, which may have had it; else it stays as it is.
  Report load_latest(std::span<const Target> targets, const LoadOptions& options = {});

  /// Collective. The same for tensors whose sizes vary between steps, such as particles and growing tables: `make` is
  /// called on each rank, once for every step that is tried and can be opened, and makes the targets of that step; where
  /// the step then turns out to be damaged, it is called again for the one before. Memory of the targets that it made last
  /// must stay until the call returns. It must not call this object nor anything collective. What it throws ends the call
  /// and is never taken for damage: an Error is thrown on all ranks, any other exception as kInternal.
  Report load_latest(const TargetsOf& make, const LoadOptions& options = {});

  /// What travelled with a checkpoint. All but `rank_blob` is the same on all ranks.
  struct LoadedExtras {
    std::map<std::string, std::string> metadata;
    std::string layout;
    std::map<std::string, std::uint64_t> carried;  ///< name -> size in bytes, for load_carried()
    std::uint64_t ranks = 0;                       ///< that saved it; 0: not known
    std::uint64_t rank_blobs = 0;                  ///< number of the saving ranks, if any of them had a blob
    std::vector<std::byte> rank_blob;              ///< of the saving rank of this rank's number, if it is given one
    std::map<std::uint64_t, std::vector<std::byte>> blobs;  ///< by saving rank, all that kRank0 and kChosen give it
  };
  /// Collective. Throws as load(). Costs opening the checkpoint, a look at every carried file, and its blobs for each
  /// rank. Where there are blobs, and another number of ranks saved them than is loading, `mapping` must say who gets
  /// which: kState otherwise. It has the same kind on all ranks (kUsage).
  [[nodiscard]] LoadedExtras load_extras(std::uint64_t step, const BlobMapping& mapping = {});

  /// Collective. The blob of a saving rank, below LoadedExtras::rank_blobs; each rank names the one that it wants, or
  /// none, and gets that alone. Throws kState on all ranks when one names a rank that did not save, kNotFound where no
  /// rank had a blob, else as load().
  [[nodiscard]] std::vector<std::byte> load_rank_blob(std::uint64_t step, std::optional<std::uint64_t> saving_rank);

  /// Collective. A carried file of any size, which rank 0 reads piece by piece and gives to the sinks of all ranks; a
  /// sink may be empty. Takes 4 MiB on each rank. Throws kNotFound for a name that is none of LoadedExtras::carried, kIo,
  /// and kIntegrity when all was given and the checksum is not what was written: what the sinks got is then of no use,
  /// after any other error neither. An Error of a sink is thrown on all ranks, any other exception of it as kInternal.
  void load_carried(std::uint64_t step, const std::string& name, const CarriedSink& sink);

  /// Collective, since the ranks of a node share the windows. Gives back what saves and loads keep for the next ones:
  /// windows and bounce buffers (together up to Limits::memory_budget_bytes), pinned memory for copies from devices, and
  /// the plan of the last save. The next save plans again (Report::plan_reused is false), and whoever needs windows next
  /// pays their page faults. Without it one set of windows is kept, as large as the largest call wanted them.
  void release_memory();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace cairn
