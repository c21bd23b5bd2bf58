#include "base/version.hpp"

namespace cairn::base {

std::string tool_version() { return "cairn " CAIRN_VERSION; }

}  // namespace cairn::base
