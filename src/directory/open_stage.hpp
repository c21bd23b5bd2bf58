// A staging file opened as a checkpoint: what it says of itself, and the small files in it. StageReader reads its tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/byte_stream.hpp"
#include "directory/open.hpp"

namespace cairn::checkpoint {

/// "x.h5" or "x.hdf5": the name of a staging file, to be written or read.
bool is_stage_name(const std::filesystem::path& path);

/// Whether the open checkpoint is a staging file.
bool is_stage(const OpenCheckpoint& checkpoint);

/// Its one file.
std::filesystem::path stage_path(const OpenCheckpoint& checkpoint);

/// Rank-local: open_here for a staging file. Throws as hdf5::describe_stage.
OpenCheckpoint open_stage(const std::filesystem::path& path);

/// Where the manifest of a staging file keeps what data files had as `__metadata__`.
inline constexpr const char* kStageMetadataKey = "file_metadata";

/// Rank-local, as read_carried.
std::string read_carried_of_stage(const OpenCheckpoint& checkpoint, const std::string& name, std::uint64_t limit_bytes);

/// Rank-local, as carried_stream.
base::ByteStream carried_stream_of_stage(const OpenCheckpoint& checkpoint, const std::string& name);

}  // namespace cairn::checkpoint
