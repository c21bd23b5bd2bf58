// Tells whether this build has HDF5, and its version. The rest of Cairn uses HDF5 only through this folder. Headers
// here that include hdf5.h have a note at the top.
//
// Many distributions build libhdf5 without thread safety, so every call from here holds a process-wide lock.
#pragma once

#include <string>

namespace cairn::hdf5 {

bool is_available();

/// Throws Error(kUsage) "this build of Cairn has no HDF5 ..." unless HDF5 is available. So do all calls that need HDF5.
void require();

/// HDF5's version, such as "1.10.8"; empty without HDF5.
std::string version();

}  // namespace cairn::hdf5
