// The one use of a communicator that the program gave: a duplicate of it, on which everything else happens.
#pragma once

#include <mpi.h>

#include "cairn/waiting.hpp"

namespace cairn::comm::internal {

/// Collective over `parent`, whose error handler is left as it is, and not called. Throws Error(kUsage) for what cannot
/// be duplicated, before anything is sent, and Error(kState) when some ranks do not come here, and for a communicator
/// on which that has happened.
MPI_Comm duplicate_parent(MPI_Comm parent, const Waiting& waiting);

}  // namespace cairn::comm::internal
