// Reads boxes of a view (view.hpp) of an open checkpoint: tensors that are stored in the wanted form are read directly
// into their place; codes, scales and weights of a different dtype are read in batches of bounded size and decoded
// (decoder.hpp).
//
// A caller that reads piece by piece first describes all boxes that ranks will want (begin), then passes their memory
// (load_next). So a plan and an opening of the files serve many pieces, and a piece is read while another is processed.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/call.hpp"
#include "checkpoint/engine_choice.hpp"
#include "codes/decode_pieces.hpp"
#include "codes/decoder.hpp"
#include "codes/view.hpp"
#include "comm/communicator.hpp"
#include "io/device_copies.hpp"
#include "opening/open.hpp"

namespace cairn::checkpoint {

struct ReadOptions {
  std::string engine = "auto";
  std::uint64_t memory_budget_bytes = 256ULL << 20;
  io::Hints hints;
  std::uint64_t aggregators_per_node = 0;            ///< as in Options
  opening::Allowed allowed = {};                     ///< for the checkpoint's directory, if the reader opens it
  std::optional<std::uint64_t> decoding_bytes = {};  ///< memory for decoding, on top of the budget; unset: half
                                                     ///< of the budget, so that reading has the other half
};

/// The options of a load.
ReadOptions read_options(const Options& options);

/// Boxes that the object owns, or a view of boxes that must outlive it.
class Boxes {
 public:
  Boxes(std::vector<plan::MemoryBox> made) : made_(std::move(made)), all_(made_) {}  // NOLINT: the same
  explicit Boxes(std::span<const plan::MemoryBox> others) : all_(others) {}
  Boxes(Boxes&&) = default;
  Boxes& operator=(Boxes&&) = default;
  operator std::span<const plan::MemoryBox>() const { return all_; }  // NOLINT: the same

 private:
  std::vector<plan::MemoryBox> made_;
  std::span<const plan::MemoryBox> all_;
};

/// The boxes that the ranks will want, batch by batch.
struct Wanted {
  std::uint64_t batches = 0;  ///< the same number on all ranks
  /// Rank-local: this rank's boxes of a batch, with or without their memory. May be called several times for a batch,
  /// and must return the same boxes each time. Batches usually ascend, but may start again from an earlier batch.
  std::function<Boxes(std::uint64_t batch)> boxes;
};

/// Loader reads directories of safetensors files, StageReader staging files.
class TensorReader {
 public:
  virtual ~TensorReader() = default;
  TensorReader(const TensorReader&) = delete;
  TensorReader& operator=(const TensorReader&) = delete;

  /// Collective; a rank may want nothing. May be called again. `MemoryBox::tensor` is a number in the view; boxes of
  /// one rank may overlap. Both moments of a box are decoded together if one load wants both. Throws Error(kFormat)
  /// naming the tensor for a scale that is not finite or an unused code.
  void load(std::span<const plan::MemoryBox> wanted);

  /// Collective: announces the batches of load_next(). `wanted.boxes` is called until the last batch is loaded.
  void begin(Wanted wanted);
  /// Collective: loads the next announced batch, now with its memory. Throws as load().
  void load_next(std::span<const plan::MemoryBox> wanted);
  /// Collective, after an error that all ranks threw between begin() and the last load_next(): closes the files.
  virtual void close_after_error() noexcept {}

  /// This rank's clock of all loads so far; has the same phases on every rank.
  [[nodiscard]] const PhaseClock& clock() const { return clock_; }
  [[nodiscard]] const EngineChoice& engine() const { return engine_; }

 protected:
  /// `view`: null for the checkpoint as it is stored; with a view, a part of the memory is for decoding.
  /// `view` and the references must outlive the object.
  TensorReader(comm::Communicator& communicator, const opening::OpenCheckpoint& checkpoint, const codes::View* view,
               ReadOptions options, EngineChoice engine);

  // Collective, as begin() and load_next(), but `MemoryBox::tensor` is a number in OpenCheckpoint::stored.
  virtual void begin_stored(Wanted wanted) = 0;
  virtual void load_stored(std::span<const plan::MemoryBox> wanted, Call& call) = 0;

  comm::Communicator& communicator_;
  const opening::OpenCheckpoint& checkpoint_;
  const codes::View* view_;  ///< null: as it is stored
  std::uint64_t decoding_bytes_;
  io::DeviceCopies device_;  ///< for boxes in device memory; has a share of the whole budget
  ReadOptions options_;      ///< with the memory budget for reading
  EngineChoice engine_;

 private:
  [[nodiscard]] codes::Decoder decoder_of(std::span<const plan::MemoryBox> wanted, codes::Decoder::Purpose purpose);
  [[nodiscard]] std::vector<plan::MemoryBox> stored_boxes(std::uint64_t stored_batch);

  PhaseClock clock_;

  // With a view: the caller's batches, each of which consists of batches of a decoder.
  Wanted wanted_;
  std::vector<std::uint64_t> first_;  ///< stored batches at which the caller's batches begin, and the last one ends
  std::uint64_t next_ = 0;            ///< the caller's next batch
  /// Makes the boxes of stored batches, in order.
  struct Planner {
    std::uint64_t batch;  ///< the caller's batch
    std::uint64_t next;   ///< the next stored batch
    codes::Decoder decoder;
  };
  std::optional<Planner> planner_;
};

}  // namespace cairn::checkpoint
