// Notes and warnings, one line each, from one rank unless CAIRN_LOG_ALL_RANKS is set: to standard error, or to the
// program's sink (include/cairn/log.hpp). No other code of the library writes to either.
#pragma once

#include <string>

namespace cairn::base {

/// Called for each new communicator. A process that is never rank 0 logs only errors unless CAIRN_LOG_ALL_RANKS is set.
void set_log_rank(int rank, int size);

/// The rank that was set last; -1 if none was set.
int log_rank() noexcept;

void log_debug(const std::string& line);
void log_warning(const std::string& line);
/// Logs a problem that no exception can carry.
void log_error(const std::string& line) noexcept;

/// Logs each distinct warning once per process.
void warn_once(const std::string& line);

}  // namespace cairn::base
