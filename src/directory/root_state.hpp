// `.cairn/state.json` of a root: what changes after checkpoints were committed, and so is in no manifest.
//
//   latest_written   what Cairn last wrote to the file that names the latest; another value there was written by people
//
// Keys of other versions are kept. Losing the file loses no checkpoint: a reader then knows nothing of what it would say.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace cairn::checkpoint {

inline constexpr const char* kRootStateFile = "state.json";

struct RootState {
  std::optional<std::uint64_t> latest_written;
};

/// Rank-local. Empty where there is no file or none that can be read.
RootState read_root_state(const std::filesystem::path& root) noexcept;

/// Rank-local, by the holder of the lease, after the file that names the latest was replaced: atomic and durable.
void note_latest(const std::filesystem::path& root, std::uint64_t step);

/// Rank-local. The step in the file that names the latest; nothing where there is none, or it is not a step.
std::optional<std::uint64_t> read_latest_file(const std::filesystem::path& root) noexcept;

}  // namespace cairn::checkpoint
