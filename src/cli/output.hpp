// Standard output and standard error of a program on many ranks: rank 0 prints, the other ranks are silent. Exit codes.
//
// Results go to standard output, errors and progress to standard error. finish() checks that all output was written: a
// full disk behind a redirection is an error of the program.
#pragma once

#include <string>
#include <string_view>

#include "base/exit_codes.hpp"
#include "cairn/error.hpp"
#include "comm/communicator.hpp"

namespace cairn::cli {

class Output {
 public:
  /// `enabled`: whether this rank prints.
  explicit Output(bool enabled) : enabled_(enabled) {}

  /// Rank-local. Prints the text and a newline on standard output.
  void line(std::string_view text);
  /// As line(), without the newline.
  void text(std::string_view text);
  /// As line(), for a summary of what was done. --quiet leaves it out.
  void summary(std::string_view text);
  /// "note: <text>", one line. --quiet leaves it out.
  void note(std::string_view text);
  /// Rank-local. Prints "cairn: error: <text>" on standard error, always as one line.
  void error(std::string_view text);
  /// Rank-local. Flushes standard output without checking for errors, which finish() does.
  void flush();
  /// Rank-local. Flushes standard output; Error(kIo) if anything could not be written.
  void finish();

  /// From now on there are no summaries, notes and progress (ProgressLine).
  void be_quiet() { is_quiet_ = true; }
  [[nodiscard]] bool is_quiet() const { return is_quiet_; }

  [[nodiscard]] bool enabled() const { return enabled_; }
  /// Whether this rank prints and standard output (standard error) is a terminal.
  [[nodiscard]] bool is_terminal() const;
  [[nodiscard]] bool error_is_terminal() const;

 private:
  bool enabled_;
  bool is_quiet_ = false;
};

/// Passed to every subcommand. Communicator and output exist as long as the program.
struct Context {
  comm::Communicator& communicator;
  Output& output;

  [[nodiscard]] bool is_root() const { return communicator.rank() == 0; }
};

/// A message in the words of the command (option_words.hpp). Line breaks and other control characters become spaces, so
/// that it stays one line.
std::string one_line(std::string_view text);

using base::kExitFailed;
using base::kExitGood;
using base::kExitUsage;

/// kExitUsage for ErrorKind::kUsage, kExitFailed for every other kind.
int exit_code_of(ErrorKind kind);

/// The output of --version. Five lines: tool version, source revision, MPI library, HDF5, build type and compiler.
std::string version_text();

}  // namespace cairn::cli
