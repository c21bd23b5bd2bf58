// How much of a host's processors was taken, by everything that ran: the kernel's own work for storage, and other guests of
// a virtual machine's host, are in no process's account.
#pragma once

#include <string_view>

namespace cairn::bench {

/// Processor time since the start of the system, in ticks; both 0 where the system does not tell.
struct ProcessorTicks {
  double busy = 0;  ///< user, system, interrupts, and what a virtual machine's host kept (steal)
  double all = 0;
};

/// Rank-local. Of this host, from /proc/stat.
ProcessorTicks processor_ticks();
/// Of the first line of /proc/stat.
ProcessorTicks parse_processor_ticks(std::string_view line);

/// 0 to 1; 0 when no time has passed.
double busy_share(const ProcessorTicks& begin, const ProcessorTicks& end);

}  // namespace cairn::bench
