// Ranks as threads of one process: the same interface, no MPI. For tests.
#pragma once

#include <functional>

#include "comm/communicator.hpp"

namespace cairn::comm {

/// Runs `body(communicator)` on `ranks` threads and joins them. What the lowest throwing rank threw is thrown again. A
/// rank that waits for one that has ended or thrown gets Error(kInternal) instead of waiting for ever.
void run_simulated(int ranks, const std::function<void(Communicator&)>& body);

}  // namespace cairn::comm
