// Reads boxes of a view (view.hpp) of an open checkpoint: what is stored as it is goes straight to its place; codes and
// scales, and weights of another dtype, are read in batches of bounded size, and decoded (decoder.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "checkpoint/call.hpp"
#include "checkpoint/engine_choice.hpp"
#include "codes/decode_pieces.hpp"
#include "codes/view.hpp"
#include "comm/communicator.hpp"
#include "directory/open.hpp"
#include "io/device_copies.hpp"

namespace cairn::checkpoint {

struct ReadOptions {
  std::string engine = "auto";
  std::uint64_t memory_budget_bytes = 256ULL << 20;
  io::Hints hints;
  std::uint64_t aggregators_per_node = 0;  ///< as in Options
  Links links = Links::kInside;            ///< of the checkpoint's directory, when it is opened
};

/// Loader reads directories of safetensors files, StageReader staging files.
class TensorReader {
 public:
  virtual ~TensorReader() = default;
  TensorReader(const TensorReader&) = delete;
  TensorReader& operator=(const TensorReader&) = delete;

  /// Collective; a rank may want nothing. Any number of times. Boxes are numbered by the view; those of one rank may
  /// overlap. Both moments of a box are decoded at once when they are wanted in one load. Throws Error(kFormat) naming
  /// the tensor for a scale that is not finite and a code that is not in use.
  void load(std::span<const plan::MemoryBox> wanted);

  /// Phases of all loads so far, the same ones on every rank.
  [[nodiscard]] const PhaseClock& clock() const { return clock_; }
  [[nodiscard]] const EngineChoice& engine() const { return engine_; }

 protected:
  /// `view`: null for the checkpoint as it is stored. Where it is another one, half of the memory budget is for
  /// decoding. References must outlive the object.
  TensorReader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, const View* view,
               ReadOptions options, EngineChoice engine);

  /// Collective. Boxes are numbered by OpenCheckpoint::stored.
  virtual void load_stored(std::span<const plan::MemoryBox> wanted, Call& call) = 0;

  comm::Communicator& communicator_;
  const OpenCheckpoint& checkpoint_;
  const View* view_;  ///< null: as it is stored
  std::uint64_t decoding_bytes_;
  io::DeviceCopies device_;  ///< for boxes in device memory: of the whole budget
  ReadOptions options_;      ///< with the memory for reading alone
  EngineChoice engine_;

 private:
  PhaseClock clock_;
};

}  // namespace cairn::checkpoint
