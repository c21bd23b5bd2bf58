// The program's communicator is used only once: to duplicate it. Everything else happens on the duplicate.
#pragma once

#include <mpi.h>

#include "cairn/waiting.hpp"

namespace cairn::comm::internal {

/// Collective over `parent`, whose error handler is neither changed nor called. Throws Error(kUsage) for a communicator
/// that cannot be duplicated, before anything is sent, and Error(kState) when some ranks do not come here, now or in an
/// earlier call with this communicator.
MPI_Comm duplicate_parent(MPI_Comm parent, const Waiting& waiting);

}  // namespace cairn::comm::internal
