// `cairn ls`: the checkpoints under a root, complete or not, and why not.
#pragma once

#include <filesystem>

#include "cli/output.hpp"
#include "directory/root.hpp"

namespace cairn::cli {

struct ListOptions {
  std::filesystem::path root;
  bool json = false;
};

/// "complete", "void", "incomplete" or "partial".
const char* state_of(const checkpoint::RootEntry& entry);

/// Collective, though only rank 0 works. kExitGood also when there are none.
int run_list(Context& context, const ListOptions& options);

}  // namespace cairn::cli
