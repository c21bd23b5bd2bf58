// Tells whether this build has HDF5, and its version. The rest of Cairn uses HDF5 only through this folder. Only
// handle.hpp and the headers here that say so include hdf5.h.
//
// libhdf5 is not thread-safe as distributions build it, so every call from here holds a lock of the process.
#pragma once

#include <string>

namespace cairn::hdf5 {

bool is_available();

/// Throws Error(kUsage) "this build of Cairn has no HDF5 ..." unless HDF5 is available, as all calls of this folder do.
void require();

/// "1.10.8"; empty when not available.
std::string version();

}  // namespace cairn::hdf5
