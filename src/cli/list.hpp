// `cairn ls`: the checkpoints under a root, complete or not, and why not.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/output.hpp"
#include "root/root.hpp"

namespace cairn::cli {

struct ListOptions {
  std::filesystem::path root;
  std::vector<std::string> parts;  ///< other roots with parts of checkpoints that Cairn did not write
  bool follow_links = false;       ///< out of their directories
  bool json = false;
};

/// "complete", "void", "incomplete" or "partial"; of what Cairn did not write `ls` says "foreign" where it can be read.
const char* state_of(const root::RootEntry& entry);

/// Collective, though only rank 0 works. kExitGood also when there are none.
int run_list(Context& context, const ListOptions& options);

}  // namespace cairn::cli
