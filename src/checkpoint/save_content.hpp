// The small files of a save: the manifest, carried files, indexes, and the files of its form.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cairn/checkpoint.hpp"
#include "checkpoint/save_plan.hpp"
#include "comm/communicator.hpp"
#include "root/commit.hpp"

namespace cairn::checkpoint {

/// Further keys of a manifest, for the engine that wrote the save and the hints to it.
inline constexpr const char* kEngineKey = "engine";
inline constexpr const char* kHintsKey = "hints";

struct RootLife;

/// A save, as the program asks for it.
struct SaveRequest {
  const std::filesystem::path& directory;
  std::uint64_t step = 0;
  const Extras& extras;
  RootLife* root = nullptr;  ///< null: the save is not a step of a root
};

/// Rank-local. The content of the commit, without checksums and without the epoch of the save. Only rank 0's content
/// has the small files, and only rank 0 sets `warnings`. Throws if a carried file is missing or unreadable.
root::CommitContent content_of_save(const comm::Communicator& communicator, const PlannedSave& planned,
                                    const Options& options, const SaveRequest& request,
                                    std::vector<std::string>& warnings);

/// Rank-local, before anything is written. Throws for small files that readers would refuse.
void check_content(const root::CommitContent& content, const PlannedSave& planned, const Options& options);

}  // namespace cairn::checkpoint
