// Whose a root is: every run has a name (Options::run_id), which stands in its manifests and in .cairn/state.json.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "root/root.hpp"

namespace cairn::root {

struct RunRequest {
  std::string name;          ///< Options::run_id; empty: the root's
  bool allow_other = false;  ///< Options::allow_other_run
};

/// Rank-local, by the holder of the lease before it saves; writes nothing. The name of the run whose root it is from now
/// on: the one that is asked for, else the root's, else one that is drawn. The root's is that of its head, and where no
/// manifest has one, that of state.json, which is written after the first commit. Throws Error(kState), naming both, when
/// the root is another run's, or manifests and state.json name different ones and none is asked for.
std::string name_of_run(const std::filesystem::path& root, const RunRequest& request);
/// The same of a listing that is at hand: list_root(root).
std::string name_of_run(const std::filesystem::path& root, std::vector<RootEntry> entries, const RunRequest& request);

}  // namespace cairn::root
