// `cairn verify`: checks that the bytes on disk are those that were written.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/output.hpp"

namespace cairn::cli {

struct VerifyOptions {
  std::filesystem::path path;
  bool all = false;  ///< the path is a root: verify each of its checkpoints
  /// The path is a root: verify its checkpoints, those first that were verified longest ago, for so many seconds.
  std::optional<double> limit_seconds;
  std::vector<std::string> require;  ///< sections that must be there, and "step"
  bool follow_links = false;         ///< follow links that lead out of the checkpoint's directory
  bool trust_index = false;          ///< as in cairn::Options
  bool json = false;
};

/// The words that `require` may have.
std::vector<std::string> required_words();

/// Collective. Prints a line for each fault or, with `all`, for each checkpoint. Returns kExitFailed after any fault.
int run_verify(Context& context, const VerifyOptions& options);

}  // namespace cairn::cli
