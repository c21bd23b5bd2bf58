// Ends a program on a signal (Ctrl-C, a batch system, a terminal that goes away, a limit of processor time): its
// unfinished output is removed, and it ends at once.
//
// All threads block the signals; one thread waits for them. On a signal that thread
//   1. removes the registered paths and prints one line,
//   2. calls the registered actions (AtEnd),
//   3. ends the process with status 128 + signal.
// This needs no help from the working threads, which may hang, or from other ranks: a registered path has a name that
// only this process made. A program that does not call end_on_signals keeps its signals, and registering has no effect.
#pragma once

#include <filesystem>
#include <functional>
#include <mutex>

namespace cairn::os {

/// Call before any other thread is started, including MPI's. Ignored signals stay ignored.
void end_on_signals();

/// If `speaks` is false, nothing is removed or printed, and the process waits for a while before it ends: a launcher
/// that sees one rank end kills the others, and one rank removes the output of all.
void set_speaks_at_end(bool speaks);

/// A signal that ends the program removes the path and everything below it, until keep_at_end() is called. Any thread.
void remove_at_end(const std::filesystem::path& path);
void keep_at_end(const std::filesystem::path& path);

/// Calls `action` at an ending, after all removals and their line, as long as this object lives. The action must not
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

/// The program does not end while this is held: for a rename of a registered path and the call of keep_at_end(). Do not
/// throw in between.
[[nodiscard]] std::unique_lock<std::recursive_mutex> hold_end();

/// Never returns once an ending has begun. Call it before reporting an error that the ending may have caused.
void wait_when_ending();

}  // namespace cairn::os
