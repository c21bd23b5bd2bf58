// The log file of a root, cairn.log.jsonl: who appends, and how it stays small. format/run_log.hpp has the lines.
//
// Any process may append: a line is one write() with O_APPEND, under the file's lock. The log is never fsynced, so a
// power failure may take its last lines. Only the holder of the root's lease makes the log smaller, after a save:
//   1  log.bound    lock the log, read it; write .cairn/log.<nonce>.tmp; fsync
//   2  log.rename   look for another saver; rename the .tmp file over the log
//   3  (tail)       add what others appended to the old file in the meantime
// Those who wait for the lock find another file under the name, and open that one. Without locks (os/line_file.hpp), a
// line is lost if it is appended to the old file after step 3, by a process that opened it before step 2. That can only
// be the line of a load or a verification, since the one saver of the root makes the log smaller itself. A crash in
// step 2 or 3 leaves one of the two files; the next such saver removes the .tmp file.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>

#include "format/run_log.hpp"
#include "os/access.hpp"
#include "root/lease.hpp"

namespace cairn::root {

inline constexpr std::uint64_t kRunLogBoundBytes = 1ULL << 20;  ///< a saver makes a larger log smaller

/// Appends to the log of a root, in which there is one once a saver has taken the root's lease: other directories,
/// such as those of other programs, get none.
class RunLog {
 public:
  /// Rank-local, on rank 0.
  explicit RunLog(std::filesystem::path root, os::Access access = {}) : root_(std::move(root)), access_(access) {}

  /// Rank-local, never throws, on any thread. Completes the call with the time and Cairn's version. A failure is one
  /// warning for this object, which names the first; there is none where a reader may not write (read-only storage, no
  /// permission), or about a call that failed itself. `lease`: of the saver, after a save that succeeded; then the log
  /// is made smaller if it is too large.
  void append(format::LogCall call, Lease* lease = nullptr) noexcept;

 private:
  void append_and_bound(format::LogCall& call, Lease* lease);
  void bound(Lease& lease) const;
  void say(const format::LogCall& call, const char* problem);

  const std::filesystem::path root_;
  const os::Access access_;
  std::atomic<bool> has_failed_{false};
};

/// Unix time by the system's clock, which people may set.
std::int64_t unix_time_ms();

/// Rank-local. The log of a root: empty if there is none, or if it cannot be read at the moment; of one that is too
/// large, the end (format::limits::kRunLogBytes).
format::RunLog read_run_log(const std::filesystem::path& root) noexcept;
/// As read_run_log(), the last lines only. Throws std::bad_alloc.
format::RunLog read_end_of_log(const std::filesystem::path& root, std::uint64_t most_bytes);

}  // namespace cairn::root
