// What a program does when it is ended by a signal (Ctrl-C, a batch system, a terminal that goes away, a limit of
// processor time): what it was writing is removed, and it ends at once.
//
// A thread waits for the signals, which all others block; it removes what is registered, says so in one line, calls the
// actions that are registered (AtEnd), and ends the process with status 128 + signal. So an ending needs no help from
// the threads that work, which may hang, and none of the other ranks: what is registered has a name that only this
// process made. A program that does not ask for this (end_on_signals) keeps its signals; registering does nothing then.
#pragma once

#include <filesystem>
#include <functional>
#include <mutex>

namespace cairn::os {

/// Before any other thread is started, MPI's among them. Signals that are ignored stay so.
void end_on_signals();

/// With `speaks` off nothing is removed or said, and the process waits for a while before it ends: a launcher that sees
/// one rank end kills the others, of which one removes what all of them wrote.
void set_speaks_at_end(bool speaks);

/// To be removed at an ending, with all that is below, until keep_at_end. Any thread.
void remove_at_end(const std::filesystem::path& path);
void keep_at_end(const std::filesystem::path& path);

/// Calls `action` at an ending, after all removals and after the line that says so, as long as this object lives. The
/// action may not throw, and not wait for a thread that works. Any thread.
class AtEnd {
 public:
  explicit AtEnd(std::function<void()> action);
  ~AtEnd();
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  const std::function<void()> action_;
};

/// While it is held, the program does not end: for a rename of what is registered, and keep_at_end, which must not
/// throw in between.
[[nodiscard]] std::unique_lock<std::recursive_mutex> hold_end();

/// Returns unless an ending has begun; then never. Before one speaks of an error that the ending may have caused.
void wait_when_ending();

}  // namespace cairn::os
