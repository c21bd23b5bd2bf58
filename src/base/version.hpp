// The tool's name and version, as manifests record it.
#pragma once

#include <string>

namespace cairn::base {

/// "cairn 0.1.0".
std::string tool_version();

}  // namespace cairn::base
