// Where Cairn's notes and warnings go: to standard error, or to a function of the program that uses it.
#pragma once

#include <functional>
#include <string_view>

namespace cairn {

enum class LogLevel {
  kDebug,    ///< only with CAIRN_LOG=debug
  kWarning,  ///< on rank 0, unless CAIRN_LOG_ALL_RANKS is set
  kError,    ///< something that no exception can carry; the process may be about to end
};

/// `line` has no line break and no prefix, and is valid only during the call.
using LogSink = std::function<void(LogLevel level, std::string_view line)>;

/// Rank-local, from any thread. From now on every line that Cairn would write to standard error goes to `sink` instead,
/// for the whole process; an empty one brings back standard error, where lines begin with "cairn: warning: " or, of
/// several ranks, "cairn[3]: warning: ". A line on its way may still reach the sink before.
///
/// The sink is called on whichever thread has something to say: that of a call, or one of Cairn's (which renews a
/// lease, or watches for silence), several at a time. It must not call Cairn, and must not wait for a thread that is
/// inside a call of Cairn. What it throws ends there, and the line goes to standard error.
void set_log_sink(LogSink sink);

}  // namespace cairn
