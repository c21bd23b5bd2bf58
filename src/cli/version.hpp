// What this program is, for --version and reports.
#pragma once

#include <string>

namespace cairn::cli {

/// Three lines: tool version, MPI library, build type and compiler.
std::string version_text();

}  // namespace cairn::cli
