// `cairn repair`: puts right what is damaged in a checkpoint or a root, as far as good bytes are found.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cairn/repair.hpp"
#include "cli/output.hpp"

namespace cairn::cli {

struct RepairCommand {
  std::filesystem::path path;
  std::vector<std::string> from;  ///< RepairOptions::from
  RepairOptions options;
  double wait = 0;  ///< seconds to wait for another saver
  bool json = false;
};

/// Collective, though only rank 0 works. Returns kExitFailed if damage stays.
int run_repair(Context& context, const RepairCommand& command);

}  // namespace cairn::cli
