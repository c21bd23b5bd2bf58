// The past of a run, as the log of its root (cairn.log.jsonl) tells it, for cairn::advise.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cairn/advice.hpp"

namespace cairn {

/// A figure of several calls.
struct MeasuredFigure {
  std::uint64_t calls = 0;  ///< that the figure is of; 0: there is none
  double median = 0;        ///< of the newest calls; the mean, if the log has only sums of them
};

/// The past of the run that saved last into a root. Lines of other runs do not count, but for `bad`.
struct RunHistory {
  std::string run_id;          ///< empty: nothing was saved
  std::uint64_t saves = 0;     ///< good saves
  std::uint64_t loads = 0;     ///< good loads, by any program
  std::uint64_t bad = 0;       ///< saves and loads that failed or were refused, of any run: their lines name none
  std::uint64_t programs = 0;  ///< that saved at least once; each one after the first is a restart

  /// Seconds in which programs worked and saved, until the last save of each: without queues, starts and work after
  /// the last save.
  double up_s = 0;

  MeasuredFigure stall_s;       ///< of saves: Stall::seconds, or the whole of a synchronous save
  MeasuredFigure background_s;  ///< of asynchronous saves, after the stall
  MeasuredFigure load_s;
  MeasuredFigure interval_s;  ///< work between two saves of a program

  std::vector<std::string> notes;  ///< one line each: what is assumed, and what cannot be known

  /// Costs, and restarts in the time above as failures; no failure data after less than two saves. Neither the seconds
  /// of a restart nor those of a step are in a log.
  [[nodiscard]] AdviceInput advice_input() const;
};

/// Rank-local: reads the log, at most 64 MiB from its end. A root without a log has an empty history. Never throws for
/// the log's content. Throws Error(kNotFound) if `root` is not a directory.
RunHistory history_of(const std::filesystem::path& root);

}  // namespace cairn
