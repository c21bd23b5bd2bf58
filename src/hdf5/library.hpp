// Whether this build has HDF5, and which. The rest of Cairn sees HDF5 only through this folder: no header here but
// handle.hpp and those beside it that say so includes hdf5.h.
//
// libhdf5 is not thread-safe as distributions build it, so every call into it from here holds one lock of the process.
#pragma once

#include <string>

namespace cairn::hdf5 {

bool is_available();

/// Throws Error(kUsage) "this build of Cairn has no HDF5 ..." when it is not, as every other call of this folder does.
void require();

/// "1.10.8"; empty when not available.
std::string version();

}  // namespace cairn::hdf5
