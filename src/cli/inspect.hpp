// `cairn inspect`: shows the content of a safetensors file or a checkpoint directory, without reading tensor data.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/output.hpp"

namespace cairn::cli {

struct InspectOptions {
  std::filesystem::path path;
  std::vector<std::string> parts;  ///< other directories with files of the checkpoint
  bool follow_links = false;       ///< follow links that lead out of the checkpoint's directory
  bool trust_index = false;        ///< as in cairn::Options
  bool json = false;
  bool all = false;  ///< no limit on rows on a terminal
  // The tables to print; if no table is chosen, all are printed.
  bool sections = false;
  bool files = false;
  bool tensors = false;
  bool metadata = false;
};

/// Collective, though only rank 0 works. Returns the exit code.
int run_inspect(Context& context, const InspectOptions& options);

}  // namespace cairn::cli
