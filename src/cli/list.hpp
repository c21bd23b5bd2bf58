// `cairn ls`: lists the checkpoints of a root, complete or not, with the reasons and what the root's log tells of them.
#pragma once

#include <filesystem>
#include <optional>
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
  std::optional<double> watch_seconds;  ///< list again and again, so many seconds apart
};

inline constexpr const char* kForeign = "foreign";

/// "complete", "void", "incomplete" or "partial". `ls` adds "foreign" for readable checkpoints of other systems.
const char* state_of(const root::RootEntry& entry);

/// Collective, though only rank 0 works. Returns kExitGood even if there is no checkpoint. With `watch_seconds`, never
/// returns, unless by an error: a signal ends the program with kExitGood.
int run_list(Context& context, const ListOptions& options);

}  // namespace cairn::cli
