// Ends the job when a call stops moving: a stopped rank or a dead storage target gives no error by itself.
#pragma once

#include "checkpoint/phases.hpp"
#include "comm/communicator.hpp"
#include "comm/watchdog.hpp"

namespace cairn::checkpoint {

/// Without a beat for this long, one line with phase and rank goes to stderr and the job ends. CAIRN_WATCHDOG_S replaces
/// it; 0 switches it off.
inline constexpr double kWatchdogSeconds = 1800;

/// While it lives, every phase that `clock` begins is a beat. Simulated ranks are not watched: their waits end by
/// themselves.
class WatchedCall {
 public:
  WatchedCall(comm::Communicator& communicator, PhaseClock& clock);
  ~WatchedCall() { clock_.watch(nullptr); }
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

 private:
  PhaseClock& clock_;
  comm::Watchdog watchdog_;
};

}  // namespace cairn::checkpoint
