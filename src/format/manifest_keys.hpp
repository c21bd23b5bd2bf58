// The keys of `cairn.json`, for its writer and its reader. FORMAT.md explains them.
#pragma once

#include <fmt/core.h>

#include <array>
#include <string>
#include <string_view>

namespace cairn::format::manifest_keys {

inline constexpr const char* kFormatName = "cairn-checkpoint";

inline constexpr const char* kBase = "base";
inline constexpr const char* kBlockBytes = "block_bytes";
inline constexpr const char* kBlocksCrc = "blocks_crc32c";
inline constexpr const char* kCarriedFiles = "carried_files";
inline constexpr const char* kCounter = "counter";
inline constexpr const char* kDataFiles = "data_files";
inline constexpr const char* kEpoch = "epoch";
inline constexpr const char* kForm = "form";
inline constexpr const char* kFormat = "format";
inline constexpr const char* kFormatVersion = "format_version";
inline constexpr const char* kKind = "kind";
inline constexpr const char* kWholeKind = "whole";
inline constexpr const char* kPartKind = "part";
inline constexpr const char* kLayout = "layout";
inline constexpr const char* kLineage = "lineage";
inline constexpr const char* kManifestCrc = "manifest_crc32c";
inline constexpr const char* kMetrics = "metrics";
inline constexpr const char* kParent = "parent";
inline constexpr const char* kPart = "part";
inline constexpr const char* kQuantisation = "quantisation";
inline constexpr const char* kRankBlobs = "rank_blobs";
inline constexpr const char* kRanks = "ranks";
inline constexpr const char* kRunId = "run_id";
inline constexpr const char* kStep = "step";
inline constexpr const char* kTool = "tool";
inline constexpr const char* kUserMetadata = "user_metadata";

/// All other keys at the top level belong to Manifest::extra.
inline constexpr std::array<std::string_view, 24> kAll = {
    kBase,   kBlockBytes,    kBlocksCrc, kCarriedFiles, kCounter, kDataFiles,   kEpoch,   kForm,
    kFormat, kFormatVersion, kKind,      kLayout,       kLineage, kManifestCrc, kMetrics, kParent,
    kPart,   kQuantisation,  kRankBlobs, kRanks,        kRunId,   kStep,        kTool,    kUserMetadata};

// An epoch in the lineage:
inline constexpr const char* kLifeEpoch = "epoch";
inline constexpr const char* kLifeStep = "step";
inline constexpr const char* kLifeCounter = "counter";

// A file:
inline constexpr const char* kFileCrc = "crc32c";
inline constexpr const char* kFileName = "name";
inline constexpr const char* kFileSection = "section";
inline constexpr const char* kFileSize = "size_bytes";
inline constexpr const char* kFileSha256 = "blocks_sha256";

}  // namespace cairn::format::manifest_keys

namespace cairn::format {

// Position of the manifest's own checksum. Only the manifest's writer and reader, and their fuzz test, use it.
//
// The checksum covers all bytes of the text, with eight zeros in place of the checksum's digits. Its key is on a
// separate line at the outermost level. The writer's format makes that line unique: quotes inside strings are escaped,
// and deeper keys are indented more.

inline constexpr std::size_t kChecksumDigits = 8;

/// Offset of the digits; npos if no line has the key.
inline std::size_t own_checksum_place(std::string_view text) {
  const std::string line = fmt::format("\n  \"{}\": \"", manifest_keys::kManifestCrc);
  const std::size_t at = text.find(line);
  if (at == std::string_view::npos || text.size() - at - line.size() < kChecksumDigits) return std::string_view::npos;
  return at + line.size();
}

}  // namespace cairn::format
