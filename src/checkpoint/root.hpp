// The root directory of a run: checkpoint-<step> directories, partial ones, and the file that names the latest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace cairn::checkpoint {

inline constexpr const char* kLatestFile = "latest_checkpointed_iteration.txt";
inline constexpr const char* kManifestFile = "cairn.json";
inline constexpr const char* kBlocksFile = "cairn.blocks";
inline constexpr const char* kPartialSuffix = ".partial";

std::filesystem::path checkpoint_directory(const std::filesystem::path& root, std::uint64_t step);
std::filesystem::path partial_directory(const std::filesystem::path& directory);

struct RootEntry {
  std::uint64_t step = 0;
  std::filesystem::path directory;
  bool partial = false;     ///< being written, or left by a crash
  bool complete = false;    ///< manifest readable, and every file it names is there with its size
  std::string problem;      ///< why not complete
  std::uint64_t bytes = 0;  ///< of data files
  std::uint64_t files = 0;
};

/// Rank-local. Entries by step, partial ones after; an unreadable root throws.
std::vector<RootEntry> list_root(const std::filesystem::path& root);

/// Rank-local. Partial directories of any step under the root, complete or not.
std::vector<std::filesystem::path> partial_directories(const std::filesystem::path& root);

/// Rank-local. Newest complete step.
std::optional<std::uint64_t> newest_complete(const std::filesystem::path& root);

}  // namespace cairn::checkpoint
