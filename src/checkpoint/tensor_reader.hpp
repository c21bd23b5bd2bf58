// Reads boxes of tensors from an open checkpoint of any kind: a directory of safetensors files by Loader, a staging file
// through HDF5.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "checkpoint/load.hpp"
#include "checkpoint/phases.hpp"
#include "directory/open.hpp"

namespace cairn::checkpoint {

class TensorReader {
 public:
  virtual ~TensorReader() = default;
  TensorReader() = default;
  TensorReader(const TensorReader&) = delete;
  TensorReader& operator=(const TensorReader&) = delete;

  /// Collective; a rank may want nothing. Any number of times. Boxes of one rank may overlap.
  virtual void load(std::span<const WantedBox> wanted) = 0;
  /// Phases of all loads so far, the same ones on every rank.
  virtual PhaseClock& clock() = 0;
  [[nodiscard]] virtual const EngineChoice& engine() const = 0;
};

/// Collective. Boxes are numbered by checkpoint.stored. `communicator`, `checkpoint` and `windows` (may be null: windows of
/// its own) must outlive the reader.
std::unique_ptr<TensorReader> make_reader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint,
                                          ReadOptions options, io::WindowStore* windows = nullptr);

}  // namespace cairn::checkpoint
