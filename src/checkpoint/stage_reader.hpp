// Reads boxes of tensors from a staging file: every rank what it wants, by hyperslabs through HDF5.
//
// No byte passes through Cairn's planner, exchange or engines, which makes a staging file a witness for what those do.
// Nothing is collective but the agreement at the end of each load.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "checkpoint/tensor_reader.hpp"
#include "hdf5/stage_file.hpp"

namespace cairn::checkpoint {

class StageReader final : public TensorReader {
 public:
  StageReader(comm::Communicator& communicator, const OpenCheckpoint& checkpoint, ReadOptions options);

  /// Collective. Reads in pieces of at most half the memory budget, and 1 GiB.
  void load(std::span<const WantedBox> wanted) override;
  PhaseClock& clock() override { return clock_; }  ///< phase "read"
  [[nodiscard]] const EngineChoice& engine() const override { return engine_; }

 private:
  void read(const WantedBox& want);
  void read_packed(const WantedBox& want);

  comm::Communicator& communicator_;
  const OpenCheckpoint& checkpoint_;
  std::uint64_t piece_bytes_;
  EngineChoice engine_{"hdf5", "staging files are read through HDF5", 0};
  std::unique_ptr<hdf5::StageFile> file_;  ///< once this rank has wanted something
  PhaseClock clock_;
};

}  // namespace cairn::checkpoint
