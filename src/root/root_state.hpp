// `.cairn/state.json` of a root: facts about the root, written at the end of every commit into it.
//
//   latest_written   the step that Cairn last wrote to the latest file; a user wrote any other value there
//   run_id           name of the run that owns the root (run_name.hpp)
//
// Keys of other versions are kept. If the file is lost, no checkpoint is lost: readers then act without these facts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace cairn::root {

inline constexpr const char* kRootStateFile = "state.json";
inline constexpr const char* kLatestFile = "latest_checkpointed_iteration.txt";

struct RootState {
  std::optional<std::uint64_t> latest_written;
  std::string run_id;  ///< empty: unknown
};

/// Rank-local. Empty for a missing or damaged file; throws for an error that may be temporary.
RootState read_root_state(const std::filesystem::path& root);

/// Rank-local. The reason why the file tells nothing, "is missing" or "is damaged"; empty if it tells something. Throws
/// as read_root_state().
std::string problem_of_root_state(const std::filesystem::path& root);

/// Rank-local; called by the holder of the lease. Makes a file that was lost; without `latest_written`, a person may
/// have written what the latest file says. Atomic and durable.
void remake_root_state(const std::filesystem::path& root, const RootState& state);

/// Rank-local; called by the holder of the lease after the latest file was replaced. Atomic and durable.
void note_latest(const std::filesystem::path& root, std::uint64_t step, const std::string& run_id);

/// Rank-local. The step in the latest file; nothing without the file or, with a warning in the log, if it does not hold
/// a step. Throws for an error that may be temporary, since a user may have named a step in the file.
std::optional<std::uint64_t> read_latest_file(const std::filesystem::path& root);

}  // namespace cairn::root
