// A line on the terminal that says how far long work has come, and leaves nothing behind.
#pragma once

#include "cli/output.hpp"

namespace cairn::cli {

/// While it lives, rank 0 updates one line on standard error, at most ten times a second; only when standard error is a
/// terminal. The line is erased at the end. At most one at a time.
class ProgressLine {
 public:
  explicit ProgressLine(const Output& output);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

 private:
  bool active_;
};

}  // namespace cairn::cli
