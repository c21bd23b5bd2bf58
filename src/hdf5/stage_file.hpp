// Staging files (STAGING.md) through HDF5: the contents of one, boxes of its tensors as hyperslabs, and the skeleton.
//
// Every rank opens the file separately, read-only and without locks; no call here is collective. Files with structures
// that Cairn does not write (external links, external data, chunks, other types) are refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "cairn/box.hpp"
#include "format/stored_checkpoint.hpp"

namespace cairn::hdf5 {

/// Whether the file begins with HDF5's signature. False if there is no regular file at `path`.
bool looks_like_hdf5(const std::filesystem::path& path);

struct StageDescription {
  format::StoredCheckpoint stored;               ///< one file, one box per tensor
  std::string manifest;                          ///< JSON text
  std::map<std::string, std::uint64_t> carried;  ///< file name -> size
};

/// Rank-local. Throws Error(kFormat), one line, if the file is damaged or not Cairn's; kIntegrity for a wrong checksum.
StageDescription describe_stage(const std::filesystem::path& path);

/// An open staging file.
class StageFile {
 public:
  /// Throws Error(kNotFound) or Error(kIo) if the file cannot be opened, Error(kIntegrity) if its size differs.
  StageFile(const std::filesystem::path& path, std::uint64_t size_bytes);
  ~StageFile();
  StageFile(const StageFile&) = delete;
  StageFile& operator=(const StageFile&) = delete;

  /// Reads one box, row-major, by one hyperslab of less than 2 GiB. Requires that `memory` has the size of the box, and
  /// that elements are whole bytes. Throws Error(kIo), or kFormat if the dataset does not match the tensor. Fault hook:
  /// "read".
  void read_box(const format::StoredTensor& tensor, const Box& box, std::span<std::byte> memory);
  /// As read_box(), for a tensor of a sub-byte dtype: reads packed bytes from `offset_bytes` on.
  void read_packed(const format::StoredTensor& tensor, std::uint64_t offset_bytes, std::span<std::byte> memory);
  /// Size of a carried file.
  std::uint64_t carried_bytes(const std::string& name);
  base::Bytes read_carried(const std::string& name);
  /// Reads a carried file in pieces. `put` must not call HDF5.
  void give_carried(const std::string& name, const base::PutBytes& put);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The skeleton: a staging file without the bytes of its tensors. One rank writes it before all ranks write the rest.
//
// Every dataset is contiguous, and allocated without fill values when it is made. So its place in the file is known,
// and the skeleton is sparse: as long as the staging file, but on disk only as large as metadata and carried files.
// STAGING.md describes the layout.

/// Version of the format, stored in the attribute `cairn_format_version`.
inline constexpr std::uint64_t kStageVersion = 1;

struct StageContent {
  std::vector<format::StoredTensor> tensors;        ///< boxes are ignored
  std::map<std::string, base::ByteStream> carried;  ///< file name -> content, which is read twice
  std::string manifest;                             ///< JSON text (format/manifest.hpp)
  std::string tool;
  std::string run_id;
  std::string layout;
  std::optional<std::uint64_t> step;
  std::uint64_t align_bytes = 4096;  ///< datasets of at least 16 times this size begin on its multiples
};

/// Rank-local. Makes the file at `path`, which must not exist, without fsync. Returns each tensor's place in this file,
/// as one box per tensor. Equal content gives equal bytes. Throws Error(kIo), or kUsage for content that HDF5 cannot
/// store: more than 32 dimensions, a name with a NUL byte.
format::StoredCheckpoint write_skeleton(const std::filesystem::path& path, const StageContent& content);

}  // namespace cairn::hdf5
