// `cairn verify`: are the bytes on disk the bytes that were written?
#pragma once

#include <filesystem>

#include "cli/output.hpp"

namespace cairn::cli {

struct VerifyOptions {
  std::filesystem::path path;
  bool follow_links = false;  ///< out of the checkpoint's directory
  bool json = false;
};

/// Collective. Prints each fault on a line of its own. kExitFailed when there is any.
int run_verify(Context& context, const VerifyOptions& options);

}  // namespace cairn::cli
