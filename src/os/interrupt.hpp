// Ends a program at once on a signal (Ctrl-C, a batch system, a closed terminal, a limit of processor time), after
// removing the program's unfinished output.
//
// All threads block the signals; one thread waits for them. On a signal that thread
//   1. removes the registered paths and prints one line,
//   2. calls the registered actions (AtEnd),
//   3. ends the process with status 128 + signal.
// This needs no help from the working threads, which may hang, or from other ranks: a registered path has a name that
// this process alone chose. Without a call of end_on_signals, signals work as usual and registering has no effect.
#pragma once

#include <filesystem>
#include <functional>
#include <mutex>

namespace cairn::os {

/// Call before any other thread is started, including MPI's. Ignored signals stay ignored.
void end_on_signals();

/// If `speaks` is false, an ending removes, prints and calls nothing, but waits for 3 s: a launcher
/// kills all ranks after one has ended, but the rank that speaks must first remove the output of all.
void set_speaks_at_end(bool speaks);

/// The program has done its work, and will end with `exit_code`: a signal from now on ends it at once with that code,
/// and removes, prints and calls nothing. A launcher sends SIGTERM to ranks that end a moment later than others.
void settle_ending(int exit_code);

/// A signal that ends the program removes `path` with its content, unless keep_at_end() was called. On any thread.
void remove_at_end(const std::filesystem::path& path);
void keep_at_end(const std::filesystem::path& path);

/// While this object lives, an ending calls `action`, after all removals and the printed line. The action must not
/// throw or wait for a working thread. Any thread.
class AtEnd {
 public:
  explicit AtEnd(std::function<void()> action);
  ~AtEnd();
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  const std::function<void()> action_;
};

/// An ending waits while the result is held, for example during a rename of a registered path and the call of
/// keep_at_end(). Do not throw in between.
[[nodiscard]] std::unique_lock<std::recursive_mutex> hold_end();

/// Never returns once an ending has begun. Call it before reporting an error that the ending may have caused.
void wait_when_ending();

}  // namespace cairn::os
