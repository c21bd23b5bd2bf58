// The tool's name and version, as manifests record it.
#pragma once

#include <string>

namespace cairn::checkpoint {

/// "cairn 0.1.0".
inline std::string tool_version() { return std::string("cairn ") + CAIRN_VERSION; }

}  // namespace cairn::checkpoint
