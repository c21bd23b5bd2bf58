// A staging file without the bytes of its tensors: what one rank writes, serially, before all ranks write the rest.
//
// Every dataset is contiguous, allocated when it is made and never filled, so its place in the file is known and the
// skeleton is sparse: as long as the staging file, and as small as its metadata on disk. The layout is in STAGING.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "format/stored_checkpoint.hpp"

namespace cairn::hdf5 {

/// Of staging files; the attribute `cairn_format_version`.
inline constexpr std::uint64_t kStageVersion = 1;

struct StageContent {
  std::vector<format::StoredTensor> tensors;        ///< boxes are not looked at
  std::map<std::string, base::ByteStream> carried;  ///< file name -> content, given twice
  std::string manifest;                             ///< JSON text (format/manifest.hpp)
  std::string tool;
  std::string run_id;
  std::string layout;
  std::optional<std::uint64_t> step;
  std::uint64_t align_bytes = 4096;  ///< datasets of 16 times this and more begin on its multiples
};

/// Rank-local. Makes the file at `path`, which must not exist; not fsynced. Returns where each tensor lies: one file
/// (named as `path`), one box per tensor. The same content gives the same bytes. Throws Error(kIo), or kUsage for what
/// HDF5 cannot hold: more than 32 dimensions, a name with a NUL byte.
format::StoredCheckpoint write_skeleton(const std::filesystem::path& path, const StageContent& content);

}  // namespace cairn::hdf5
