// The owner of a root: every run has a name (Options::run_id), in its manifests and in .cairn/state.json.
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

/// Rank-local, by the holder of the lease before it saves; writes nothing. The name of the run that owns the root from
/// now on: the requested name, else the root's, else a random one. The root's name is that of its head; where no
/// manifest has a name, that of state.json, which is written after the first commit. Throws Error(kState), naming both
/// runs, when the root is another run's, or when manifests and state.json differ and no name is requested.
std::string name_of_run(const std::filesystem::path& root, const RunRequest& request);
/// As above, with the result of list_root(root) as `entries`.
std::string name_of_run(const std::filesystem::path& root, std::vector<RootEntry> entries, const RunRequest& request);

}  // namespace cairn::root
