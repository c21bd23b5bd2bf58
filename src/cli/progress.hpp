// Says how far long work has come: one line on the terminal, which leaves nothing behind, or lines in a job's log.
#pragma once

#include "cli/output.hpp"

namespace cairn::cli {

/// While it lives, rank 0 updates one line on standard error, at most ten times a second, and erases it at the end; where
/// standard error is not a terminal (under mpirun it never is) it writes a line every 10 seconds, or every CAIRN_PROGRESS_S
/// (0: none). At most one at a time.
class ProgressLine {
 public:
  explicit ProgressLine(const Output& output);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  bool draws_;
};

}  // namespace cairn::cli
