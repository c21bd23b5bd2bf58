// The small files of a checkpoint next to its data: configurations, tokenizers, notes about runs.
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

// Staging files as checkpoints: their description, and the small files in them. StageReader reads their tensors.

/// Whether the path has the name of a staging file ("x.h5" or "x.hdf5"), to be written or read.
bool is_stage_name(const std::filesystem::path& path);

inline constexpr const char* kStageDialect = "HDF5 staging file";  ///< value of about.dialect

/// Whether the open checkpoint is a staging file.
bool is_stage(const OpenCheckpoint& checkpoint);

/// The path of the open staging file.
std::filesystem::path stage_path(const OpenCheckpoint& checkpoint);

/// Rank-local: open_here() for a staging file. Throws as hdf5::describe_stage(), and Error(kFormat) for other files.
OpenCheckpoint open_stage(const std::filesystem::path& path);

/// The key, in a staging file's manifest, for the `__metadata__` of the data files that it was made from.
inline constexpr const char* kStageMetadataKey = "file_metadata";

/// Rank-local: read_carried() for a staging file.
std::string read_carried_of_stage(const OpenCheckpoint& checkpoint, const std::string& name, std::uint64_t limit_bytes);

/// Rank-local: carried_stream() for a staging file.
base::ByteStream carried_stream_of_stage(const OpenCheckpoint& checkpoint, const std::string& name);

/// Rank-local: a whole file of checkpoint.carried. Throws kFormat above `limit_bytes`, kIntegrity for a wrong checksum.
std::string read_carried(const OpenCheckpoint& checkpoint, const std::string& name, std::uint64_t limit_bytes);

/// Rank-local: the content of a file of checkpoint.carried, in pieces of any size. After the last piece the checksum is
/// compared, if there is one (kIntegrity). `checkpoint` must outlive the stream, which gives exactly the number of
/// bytes that it states, or throws.
base::ByteStream carried_stream(const OpenCheckpoint& checkpoint, const std::string& name);

/// A file that is read once, from its beginning, through one buffer. Rank-local.
class PiecewiseFile {
 public:
  static constexpr std::uint64_t kPieceBytes = 4ULL << 20;

  /// A file at any path. Bytes appended while reading are also read. Throws if the file cannot be opened.
  explicit PiecewiseFile(const std::filesystem::path& path);
  /// A file of checkpoint.carried, in a directory. Its checksum is compared, if the manifest has one.
  PiecewiseFile(const OpenCheckpoint& checkpoint, const std::string& name);

  /// The size at opening; next() increases it for a file outside checkpoints that has grown.
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  /// The next kPieceBytes, or the rest; valid until the next call; empty at the end. Throws kIntegrity for a wrong
  /// checksum, kIo if a checkpoint's file without a checksum has grown, and as check_size() for other files.
  std::span<std::byte> next();
  /// Throws Error(kUsage) for a file with more bytes than the system reports, such as a file in /proc.
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

/// Rank-local: a file outside checkpoints, read only when the stream is read. Throws if the file cannot be opened now,
/// and as PiecewiseFile::check_size().
base::ByteStream file_stream(const std::filesystem::path& path);

}  // namespace cairn::opening
