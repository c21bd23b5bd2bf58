// The tool's name and version, as recorded in manifests.
#pragma once

#include <string>

namespace cairn::base {

/// "cairn 0.1.0".
std::string tool_version();

}  // namespace cairn::base
