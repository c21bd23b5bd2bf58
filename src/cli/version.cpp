// Version of the tool and of what it was built with.
#include "cli/version.hpp"

#include <fmt/core.h>

#include "base/version.hpp"
#include "cli/output.hpp"
#include "comm/mpi.hpp"
#include "hdf5/library.hpp"

namespace cairn::cli {

std::string version_text() {
  const std::string hdf5 = hdf5::is_available() ? hdf5::version() : "none in this build";
  return fmt::format("{}\nMPI library: {}\nHDF5: {}\nbuild: {}, compiler {}", base::tool_version(),
                     one_line(comm::mpi_library()), hdf5, CAIRN_BUILD_TYPE, __VERSION__);
}

}  // namespace cairn::cli
