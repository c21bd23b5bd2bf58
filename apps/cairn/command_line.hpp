// Options of subcommands: a thin interface over CLI11, whose headers take about 17 s to compile in each unit.
// In this program, only command_line.cpp includes these headers.
//
// Handles may be copied; they point into the CommandLine, which must outlive them. Values are bound by address and
// must exist until the chosen subcommand has run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cli/output.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace cairn::app {

/// Collective: does the work and returns the exit code.
using Command = std::function<int(cli::Context&)>;

/// The destination of an option's value. A function is called with the string, which it can refuse with an Error;
/// a function that accepts a vector is called once with all values.
using Target =
    std::variant<std::string*, std::filesystem::path*, std::uint64_t*, unsigned*, double*,
                 std::optional<std::uint64_t>*, std::optional<int>*, std::vector<std::string>*, std::vector<int>*,
                 std::function<void(const std::string&)>, std::function<void(const std::vector<std::string>&)>>;

/// One option, and calls that set its properties.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option& option) : option_(&option) {}

  CommandOption required();
  /// Name of the value in --help.
  CommandOption type_name(const std::string& name);
  CommandOption one_of(const std::vector<std::string>& values);
  /// A number above 0.
  CommandOption positive();
  /// One word can contain several values, separated by `delimiter`.
  CommandOption split_at(char delimiter);
  /// The option can be repeated, with one value each time. Otherwise a list takes all words up to the next option.
  CommandOption repeatable();

 private:
  CLI::Option* option_;
};

/// The program or one of its subcommands.
class Subcommand {
 public:
  Subcommand(CLI::App& app, Command& chosen) : app_(&app), chosen_(&chosen) {}

  Subcommand add_subcommand(const std::string& name, const std::string& description);
  /// `name`: "--dir", or "path" for a word without dashes. Refuses empty values, and numbers that are not decimal or do
  /// not fit.
  CommandOption option(const std::string& name, Target target, const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help);
  /// Printed at the end of --help.
  void footer(const std::string& text);
  /// Makes it an error to choose no subcommand of this one.
  void require_subcommand();
  /// Sets the function to run when this subcommand is chosen.
  void runs(Command command);

 private:
  CLI::App* app_;
  Command* chosen_;
};

class CommandLine {
 public:
  CommandLine(const std::string& name, const std::string& description);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  [[nodiscard]] Subcommand program();
  /// Adds --version, which prints what `text` returns.
  void version(std::function<std::string()> text, const std::string& help);

  /// The reason why there is nothing to run: help or the version was requested, or the arguments are wrong.
  struct Refusal {
    bool is_error;
    std::string text;
  };
  /// Rank-local. Returns nothing if a subcommand was chosen.
  std::optional<Refusal> parse(int argc, char** argv);
  /// The chosen command, after a parse() without a Refusal.
  [[nodiscard]] const Command& chosen() const { return chosen_; }

 private:
  std::unique_ptr<CLI::App> app_;
  Command chosen_;
};

}  // namespace cairn::app
