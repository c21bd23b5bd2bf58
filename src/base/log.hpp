// Notes and warnings, one line each, from one rank unless said otherwise: to standard error, or to the program's own
// sink (include/cairn/log.hpp). Nothing of the library writes there by itself.
#pragma once

#include <string>

namespace cairn::base {

/// For each communicator that is made: a process that is rank 0 of none is silent below errors unless CAIRN_LOG_ALL_RANKS
/// is set.
void set_log_rank(int rank, int size);

void log_debug(const std::string& line);
void log_warning(const std::string& line);
/// For what no exception can carry.
void log_error(const std::string& line) noexcept;

/// A warning that is printed once per process for the same text.
void warn_once(const std::string& line);

}  // namespace cairn::base
