// The owner of a root: every run has a name (Options::run_id), in its manifests and in .cairn/state.json.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "root/root.hpp"

namespace cairn::root {

struct RunRequest {
  std::string name;          ///< Options::run_id; empty: the root's, or a random one
  bool allow_other = false;  ///< Options::allow_other_run
};

/// Rank-local; called before the lease is taken, and again by its holder before the first save; writes nothing. Returns
/// the name of the run that owns the root from now on: the requested name, or the root's, or a random name. The root's
/// name is in the last saved manifest with a name, otherwise in state.json, if that exists. Unless `allow_other`
/// is set, throws Error(kState), naming both runs, if the root belongs to another run, or if manifests and state.json
/// differ and no name is requested.
std::string name_of_run(const std::filesystem::path& root, const RunRequest& request);
/// As above, with the result of list_root(root) as `entries`.
std::string name_of_run(const std::filesystem::path& root, std::vector<RootEntry> entries, const RunRequest& request);

}  // namespace cairn::root
