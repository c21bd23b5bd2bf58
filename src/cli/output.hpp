// Standard output and standard error of a program that runs on many ranks: rank 0 speaks, the others are silent.
//
// Results go to standard output, errors and progress to standard error. Nothing printed is trusted to have arrived until
// finish() said so: a full disk behind a redirection is an error of the program.
#pragma once

#include <string>
#include <string_view>

#include "comm/communicator.hpp"

namespace cairn::cli {

class Output {
 public:
  /// `enabled`: whether this rank prints at all.
  explicit Output(bool enabled) : enabled_(enabled) {}

  /// Rank-local. Prints the text and a newline on standard output.
  void line(std::string_view text);
  /// Rank-local. Prints "cairn: error: <text>" on standard error, as one line whatever the text holds.
  void error(std::string_view text);
  /// Rank-local. Flushes standard output; Error(kIo) when anything could not be written.
  void finish();

  [[nodiscard]] bool enabled() const { return enabled_; }
  /// True when this rank prints and standard output (standard error) is a terminal.
  [[nodiscard]] bool is_terminal() const;
  [[nodiscard]] bool error_is_terminal() const;

 private:
  bool enabled_;
};

/// What every subcommand is given. The communicator and the output live as long as the program.
struct Context {
  comm::Communicator& communicator;
  Output& output;

  [[nodiscard]] bool is_root() const { return communicator.rank() == 0; }
};

/// Line breaks and other control characters of a message become blanks, so that it stays one line.
std::string one_line(std::string_view text);

}  // namespace cairn::cli
