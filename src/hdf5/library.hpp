// Whether this build has HDF5, and which version. The rest of Cairn uses HDF5 only through this folder: hdf5.h is
// included only by handle.hpp, and by the headers here that say so.
//
// libhdf5 is not thread-safe as distributions build it, so every call into it from here holds one lock of the process.
#pragma once

#include <string>

namespace cairn::hdf5 {

bool is_available();

/// Throws Error(kUsage) "this build of Cairn has no HDF5 ..." unless HDF5 is available, as all calls of this folder do.
void require();

/// "1.10.8"; empty when not available.
std::string version();

}  // namespace cairn::hdf5
