// `cairn report`: what happened in the root of a run.
#pragma once

#include <filesystem>

#include "cli/advise.hpp"
#include "cli/output.hpp"

namespace cairn::cli {

struct ReportOptions {
  AdviseOptions advice;             ///< with the root
  std::filesystem::path html_file;  ///< empty: none
  bool json = false;
};

/// Collective, though only rank 0 works. Throws Error(kNotFound) for a root that is not a directory, and kUsage for a
/// file that cannot be written.
int run_report(Context& context, const ReportOptions& options);

}  // namespace cairn::cli
