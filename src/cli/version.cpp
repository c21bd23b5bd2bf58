// Version of the tool and of what it was built with.
#include "cli/version.hpp"

#include <fmt/format.h>

#include "cli/output.hpp"
#include "comm/mpi.hpp"

namespace cairn::cli {

std::string tool_version() { return CAIRN_VERSION; }

std::string version_text() {
  return fmt::format("cairn {}\nMPI library: {}\nbuild: {}, compiler {}", tool_version(),
                     one_line(comm::mpi_io_implementation().library), CAIRN_BUILD_TYPE, __VERSION__);
}

}  // namespace cairn::cli
