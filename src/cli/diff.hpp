// `cairn diff`: shows which tensors differ between two checkpoints, and by how much.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/output.hpp"
#include "conversion/diff.hpp"

namespace cairn::cli {

struct DiffCommand {
  std::filesystem::path a;
  std::filesystem::path b;
  std::vector<std::string> parts_a;  ///< other directories with files of checkpoint a
  std::vector<std::string> parts_b;
  bool follow_links = false;  ///< follow links that lead out of the checkpoints' directories
  bool trust_index = false;   ///< as in cairn::Options
  bool json = false;
  bool all = false;  ///< no limit on rows on a terminal
  conversion::DiffOptions options;
};

/// Collective. Returns kExitFailed if anything differs by more than the tolerance.
int run_diff(Context& context, const DiffCommand& command);

}  // namespace cairn::cli
