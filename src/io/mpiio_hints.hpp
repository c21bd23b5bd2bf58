// Which hints engine `mpiio` passes to MPI-IO, by file system: pure functions.
//
// Only hints that change what this engine does: contiguous transfers at explicit offsets, by collective calls. What
// they change in which of ROMIO's drivers stands in src/io/README.md. A hint of the user's always wins.
#pragma once

#include <string_view>

#include "io/engine.hpp"

namespace cairn::io {

/// The user's hints and, for keys that are not among them, ours for the file system (as os::file_system_of names it; ""
/// when it is not known).
Hints mpiio_hints(std::string_view file_system, const Hints& of_user);

/// Whether, with these hints, ranks read (write) their own bytes, so that a collective read (write) of ROMIO's is nothing
/// but each rank's own, and waits for nobody.
bool reads_own_bytes(const Hints& hints);
bool writes_own_bytes(const Hints& hints);

/// Of all hints that MPI reports of an open file: those that were passed, and those that decide who moves this engine's
/// bytes and how. A hint that was passed and is missing here was refused, or is not known to this MPI.
Hints hints_that_matter(const Hints& of_file, const Hints& passed);

}  // namespace cairn::io
