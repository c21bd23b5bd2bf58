// The destination of Cairn's notes and warnings: standard error, or a function of the program.
#pragma once

#include <functional>
#include <string_view>

namespace cairn {

enum class LogLevel {
  kDebug,    ///< only with CAIRN_LOG=debug
  kWarning,  ///< on rank 0, unless CAIRN_LOG_ALL_RANKS is set
  kError,    ///< a problem that no exception can carry; the process may be about to end
};

/// `line` has no line break and no prefix, and is valid only during the call.
using LogSink = std::function<void(LogLevel level, std::string_view line)>;

/// Rank-local, from any thread. From this call on, every line that Cairn would write to standard error in this process
/// is passed to `sink`; an empty sink restores standard error, where lines begin with "cairn: warning: ", or with
/// "cairn[3]: warning: " on a rank other than 0 and where CAIRN_LOG_ALL_RANKS is set. A line that is being logged may
/// still reach the previous sink.
///
/// The sink is called on the thread that logs: the thread of a call, or one of Cairn's own threads (which save, renew a
/// lease, or watch for silence). Several threads may call it at the same time. It must not call Cairn, and must not
/// wait for a thread that is inside a call of Cairn. If it throws, the line is written to standard error.
void set_log_sink(LogSink sink);

}  // namespace cairn
