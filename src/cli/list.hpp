// `cairn ls`: lists the checkpoints of a root, complete or not, with the reasons.
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
  bool follow_links = false;       ///< follow links that lead out of the checkpoints' directories
  bool json = false;
};

inline constexpr const char* kForeign = "foreign";

/// "complete", "void", "incomplete" or "partial". `ls` adds "foreign" for readable checkpoints of other systems.
const char* state_of(const root::RootEntry& entry);

/// Collective, though only rank 0 works. Returns kExitGood even if there is no checkpoint.
int run_list(Context& context, const ListOptions& options);

}  // namespace cairn::cli
