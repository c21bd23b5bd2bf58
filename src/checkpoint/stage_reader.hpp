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

/// "x.h5" or "x.hdf5": the name of a staging file, to be written or read.
bool is_stage_name(const std::filesystem::path& path);

/// Whether the open checkpoint is a staging file.
bool is_stage(const OpenCheckpoint& checkpoint);

/// Rank-local: open_here for a staging file. Throws as hdf5::describe_stage.
OpenCheckpoint open_stage(const std::filesystem::path& path);

/// Where the manifest of a staging file keeps what data files had as `__metadata__`.
inline constexpr const char* kStageMetadataKey = "file_metadata";

/// Rank-local, as read_carried.
std::string read_carried_of_stage(const OpenCheckpoint& checkpoint, const std::string& name, std::uint64_t limit_bytes);

/// Rank-local, as carried_stream.
base::ByteStream carried_stream_of_stage(const OpenCheckpoint& checkpoint, const std::string& name);

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
