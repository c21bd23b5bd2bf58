// The program's output: standard output and standard error, exit codes, JSON, version.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/json.hpp"
#include "cairn/error.hpp"
#include "comm/communicator.hpp"

namespace cairn::cli {

// Standard output and standard error of a program on many ranks: rank 0 prints, the others are silent.
//
// Results go to standard output, errors and progress to standard error. finish() checks that all output was written: a
// full disk behind a redirection is an error of the program.

class Output {
 public:
  /// `enabled`: whether this rank prints.
  explicit Output(bool enabled) : enabled_(enabled) {}

  /// Rank-local. Prints the text and a newline on standard output.
  void line(std::string_view text);
  /// As line(), without the newline.
  void text(std::string_view text);
  /// Rank-local. Prints "cairn: error: <text>" on standard error, always as one line.
  void error(std::string_view text);
  /// Rank-local. Flushes standard output without checking for errors, which finish() does.
  void flush();
  /// Rank-local. Flushes standard output; Error(kIo) if anything could not be written.
  void finish();

  [[nodiscard]] bool enabled() const { return enabled_; }
  /// Whether this rank prints and standard output (standard error) is a terminal.
  [[nodiscard]] bool is_terminal() const;
  [[nodiscard]] bool error_is_terminal() const;

 private:
  bool enabled_;
};

/// Passed to every subcommand. Communicator and output exist as long as the program.
struct Context {
  comm::Communicator& communicator;
  Output& output;

  [[nodiscard]] bool is_root() const { return communicator.rank() == 0; }
};

/// Line breaks and other control characters of a message become spaces, so that it stays one line.
std::string one_line(std::string_view text);

// Exit codes of the program: the same on every rank.

inline constexpr int kExitGood = 0;
inline constexpr int kExitFailed = 1;  ///< the checkpoint or the work failed, or two checkpoints differ
inline constexpr int kExitUsage = 2;   ///< the command line was wrong; nothing was done

/// kExitUsage for ErrorKind::kUsage, kExitFailed for every other kind.
int exit_code_of(ErrorKind kind);

// JSON output: the envelope of every document. README.md has the keys of each command.

inline constexpr int kJsonVersion = 1;

/// {"cairn_json": 1, "command": <command>}: keys keep the order in which they are added.
base::Json json_document(std::string_view command);

/// Prints the document, indented by two. Bytes that are not UTF-8 are replaced, so that the text always parses.
void print_json(Output& output, const base::Json& document);

/// A list whose values are made while they are printed, since a checkpoint may have 100,000 tensors.
struct JsonList {
  using Visit = std::function<void(const base::Json& value)>;
  std::string_view key;
  std::function<void(const Visit& visit)> walk;
};

/// Prints a document with the keys of `before`, the list, and the keys of `after`; both must be non-empty objects.
void print_json(Output& output, const base::Json& before, const JsonList& list, const base::Json& after);

/// A number, or the string "infinity", "-infinity" or "nan", for which JSON has no number.
base::Json json_number(double value);

/// The output of --version. Four lines: tool version, MPI library, HDF5, build type and compiler.
std::string version_text();

}  // namespace cairn::cli
