// How far long work has come: one observer per process, told by the loops of save, load, verify, convert and diff.
//
// Rank-local and cheap: without an observer a report is one test of a flag. Reports come from the thread that does the
// work; set the observer before the work begins.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>

namespace cairn::checkpoint {

/// `done` of `total` bytes of the phase, as this rank sees it; total 0 means unknown. A new phase name begins a new count.
using ProgressObserver = std::function<void(std::string_view phase, std::uint64_t done, std::uint64_t total)>;

namespace detail {
inline ProgressObserver& progress_observer() {
  static ProgressObserver observer;
  return observer;
}
inline thread_local int quiet_steps = 0;
}  // namespace detail

/// Replaces the observer; an empty one ends the reports.
inline void set_progress(ProgressObserver observer) { detail::progress_observer() = std::move(observer); }

inline void report_progress(std::string_view phase, std::uint64_t done, std::uint64_t total) {
  if (detail::quiet_steps == 0 && detail::progress_observer()) detail::progress_observer()(phase, done, total);
}

/// While it lives this thread reports nothing: for steps of a larger work that tells how far it has come itself.
class QuietProgress {
 public:
  QuietProgress() { ++detail::quiet_steps; }
  ~QuietProgress() { --detail::quiet_steps; }
  QuietProgress(const QuietProgress&) = delete;
  QuietProgress& operator=(const QuietProgress&) = delete;
};

}  // namespace cairn::checkpoint
