// Version of the tool and of what it was built with.
#include "cli/version.hpp"

#include <fmt/format.h>

#include "checkpoint/version.hpp"
#include "cli/output.hpp"
#include "comm/mpi.hpp"

namespace cairn::cli {

std::string version_text() {
  return fmt::format("{}\nMPI library: {}\nbuild: {}, compiler {}", checkpoint::tool_version(),
                     one_line(comm::mpi_library()), CAIRN_BUILD_TYPE, __VERSION__);
}

}  // namespace cairn::cli
