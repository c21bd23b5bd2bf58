// Ranks as threads of one process: the same interface without MPI, for tests.
#pragma once

#include <functional>

#include "comm/communicator.hpp"

namespace cairn::comm {

/// Runs `body(communicator)` on `ranks` threads and joins them. Rethrows the lowest rank's error,
/// preferring ranks that failed on their own. A rank that would wait for an ended rank for ever gets Error(kInternal).
///
/// There are `ranks_per_node` ranks on a node (0: all on one); the last node may have fewer.
void run_simulated(int ranks, const std::function<void(Communicator&)>& body, int ranks_per_node = 0);

}  // namespace cairn::comm
