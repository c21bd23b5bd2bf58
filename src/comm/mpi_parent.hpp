// The program's communicator is used only while it is duplicated. Everything else happens on the duplicate.
#pragma once

#include <mpi.h>

#include "cairn/waiting.hpp"

namespace cairn::comm::internal {

/// Collective: duplicates `parent`, whose error handler is not called and is restored at the end. Throws Error(kUsage)
/// for a communicator that cannot be duplicated, before anything is sent, and Error(kState) if some ranks do not make
/// this call, or did not make an earlier call with this communicator.
MPI_Comm duplicate_parent(MPI_Comm parent, const Waiting& waiting);

}  // namespace cairn::comm::internal
