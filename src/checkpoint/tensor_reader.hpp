// Reads boxes of tensors from an open checkpoint of any kind: a directory of safetensors files by Loader, a staging file
// through HDF5.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/byte_stream.hpp"
#include "base/bytes.hpp"
#include "checkpoint/call.hpp"
#include "checkpoint/load.hpp"
#include "checkpoint/open.hpp"

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

/// Rank-local: one of checkpoint.carried. Throws Error(kFormat) when it is larger than `limit_bytes`.
std::string read_carried(const OpenCheckpoint& checkpoint, const std::string& name, std::uint64_t limit_bytes);

/// Rank-local: the same in pieces, of any size, compared with the checksum that it was written with, where there is one,
/// after the last piece. `checkpoint` must outlive it.
base::ByteStream carried_stream(const OpenCheckpoint& checkpoint, const std::string& name);

}  // namespace cairn::checkpoint
