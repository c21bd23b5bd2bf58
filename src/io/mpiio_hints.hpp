// The hints that engine `mpiio` passes to MPI-IO, by file system: pure functions.
//
// The engine sets only hints that affect its own calls: contiguous transfers at explicit offsets, by collective calls.
// src/io/README.md describes their effect in each of ROMIO's drivers. The user's hints always win.
#pragma once

#include <string_view>

#include "io/engine.hpp"

namespace cairn::io {

/// The user's hints and, for other keys, Cairn's defaults for the file system (named as os::file_system_of names it; ""
/// if unknown).
Hints mpiio_hints(std::string_view file_system, const Hints& of_user);

/// Whether, with these hints, each rank reads (writes) its own bytes in a collective read (write) of ROMIO without
/// waiting for other ranks.
bool reads_own_bytes(const Hints& hints);
bool writes_own_bytes(const Hints& hints);

/// Selects, from the hints that MPI reports for an open file, the hints that were passed and those that tell how this
/// engine's bytes move. A passed hint that is missing in the result was refused, or is unknown to this MPI.
Hints hints_that_matter(const Hints& of_file, const Hints& passed);

}  // namespace cairn::io
