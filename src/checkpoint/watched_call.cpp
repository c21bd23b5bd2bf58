#include "checkpoint/watched_call.hpp"

#include <fmt/core.h>

#include "comm/mpi.hpp"

namespace cairn::checkpoint {
namespace {

double seconds_for(comm::Communicator& communicator) {
  const bool is_mpi = comm::native_handle(communicator) != MPI_COMM_NULL;
  return is_mpi ? comm::Watchdog::seconds_from_environment(kWatchdogSeconds) : 0;
}

}  // namespace

WatchedCall::WatchedCall(comm::Communicator& communicator, PhaseClock& clock)
    : clock_(clock),
      watchdog_(seconds_for(communicator),
                [text = fmt::format("rank {} of {}", communicator.rank(), communicator.size())] { return text; }) {
  clock_.watch(&watchdog_);
}

}  // namespace cairn::checkpoint
