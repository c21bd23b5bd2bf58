// `cairn.json`: what a checkpoint is. Written last; a directory without it is no checkpoint of Cairn's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"

namespace cairn::format {

inline constexpr int kManifestVersion = 1;

struct ManifestFile {
  std::string name;
  std::string section;  ///< empty for carried and internal files
  std::uint64_t size_bytes = 0;
  std::uint32_t crc32c = 0;  ///< of the whole file
};

struct Manifest {
  int version = kManifestVersion;
  std::string tool;  ///< "cairn 0.1.0"
  std::uint64_t step = 0;
  bool has_step = false;
  std::string run_id;
  std::string parent;  ///< directory name of the checkpoint that this one continues, or empty
  std::string layout;  ///< of the ranks that saved it, short form or JSON text; informative
  std::uint64_t ranks = 0;
  std::uint64_t block_bytes = 0;
  std::vector<ManifestFile> data_files;     ///< in block-table order
  std::vector<ManifestFile> carried_files;  ///< config.json, tokenizer, rank blobs ...
  std::uint32_t blocks_crc32c = 0;          ///< of cairn.blocks
  std::map<std::string, std::string> user_metadata;
  base::Json quantisation = base::Json::object();  ///< section -> codec name; empty: none
  base::Json extra = base::Json::object();         ///< keys of other versions, kept on rewrite
};

/// Deterministic text (keys sorted, indent 2, newline at the end). No time stamps and no rank-dependent order.
std::string encode_manifest(const Manifest& manifest);

/// Throws Error(kFormat) naming `path` and the key: not JSON, a missing or mistyped key, a newer version than this
/// build reads (says so), an unsafe file name.
Manifest parse_manifest(std::string_view json, std::string_view path);

}  // namespace cairn::format
