// The small files of a checkpoint beside its data: configurations, tokenizers, per-run notes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.hpp"
#include "format/crc32c.hpp"
#include "opening/open.hpp"
#include "os/file.hpp"

namespace cairn::opening {

// A staging file opened as a checkpoint: what it says of itself, and the small files in it. StageReader reads its
// tensors.

/// "x.h5" or "x.hdf5": the name of a staging file, to be written or read.
bool is_stage_name(const std::filesystem::path& path);

inline constexpr const char* kStageDialect = "HDF5 staging file";  ///< in OpenCheckpoint::about

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

/// Rank-local: one of checkpoint.carried. Throws Error(kFormat) when it is larger than `limit_bytes`.
std::string read_carried(const OpenCheckpoint& checkpoint, const std::string& name, std::uint64_t limit_bytes);

/// Rank-local: the same in pieces, of any size, compared with the checksum that it was written with, where there is
/// one, after the last piece. `checkpoint` must outlive it. Gives as many bytes as it says, or throws Error(kIo).
base::ByteStream carried_stream(const OpenCheckpoint& checkpoint, const std::string& name);

/// A file that is read once, from its beginning, through one buffer. Rank-local.
class PiecewiseFile {
 public:
  static constexpr std::uint64_t kPieceBytes = 4ULL << 20;

  /// Of any path. What is appended while it is read is read too. Throws what opening throws.
  explicit PiecewiseFile(const std::filesystem::path& path);
  /// One of checkpoint.carried, in a directory; it is compared with its checksum, where the manifest has one.
  PiecewiseFile(const OpenCheckpoint& checkpoint, const std::string& name);

  /// When it was opened: so much is read, or more of a file that grows.
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  /// The next kPieceBytes, or what is left; good until the next call. Behind the last piece nothing, and then throws
  /// Error(kIntegrity) when the checksum is another one, Error(kIo) when a checkpoint's file without one grew.
  std::span<std::byte> next();
  /// Throws Error(kUsage) for a file that has more bytes than the system says, as those of /proc have.
  void check_size() const;

 private:
  [[nodiscard]] bool has_byte_at(std::uint64_t offset) const;
  void look_behind_the_end();

  os::File file_;
  std::uint64_t size_bytes_;
  bool is_of_checkpoint_ = false;
  std::optional<std::uint32_t> expected_;
  std::uint64_t at_ = 0;
  base::Bytes piece_;
  format::RunningCrc32c crc_;
};

/// Rank-local: a file that is no checkpoint's, as it will be when it is read. Throws when it cannot be opened now, and
/// as PiecewiseFile::check_size().
base::ByteStream file_stream(const std::filesystem::path& path);

}  // namespace cairn::opening
