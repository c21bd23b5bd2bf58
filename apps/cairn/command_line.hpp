// Options of subcommands: a thin interface over CLI11, whose headers take about 17 s to compile in each unit.
// In this program, only command_line.cpp includes these headers.
//
// Handles may be copied; they point into the CommandLine, which must outlive them. Values are bound by address and
// must exist until the chosen subcommand has run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
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
using Target = std::variant<std::string*, std::filesystem::path*, std::uint64_t*, unsigned*, double*, long double*,
                            std::optional<std::uint64_t>*, std::optional<int>*, std::optional<double>*,
                            std::vector<std::string>*, std::vector<int>*, std::function<void(const std::string&)>,
                            std::function<void(const std::vector<std::string>&)>>;

/// The result of a parse, the chosen command, and conditions that the options must meet.
struct Parsed {
  /// If one of `options` of `command` is given while `holds` returns true, the option has no effect.
  struct Rule {
    const CLI::App* command;
    std::vector<std::string> options;
    std::string when;
    std::function<bool()> holds;
  };

  /// An option whose value is a list.
  struct List {
    std::string command;  ///< first word of the command line
    std::string option;
    char delimiter;
  };

  /// Words that the value of an option can be.
  struct Words {
    std::vector<std::string> words;
    bool are_all;  ///< other words are refused
  };

  Command chosen;
  std::vector<Rule> rules;
  std::vector<List> lists;
  bool is_quiet = false;
  std::map<const CLI::Option*, Words> words;
};

/// One option, and calls that set its properties.
class CommandOption {
 public:
  CommandOption(CLI::Option& option, const CLI::App& command, Parsed& parsed)
      : option_(&option), command_(&command), parsed_(&parsed) {}

  CommandOption required();
  /// Name of the value in --help. Shells complete a DIR with directories, a FILE or PATH with files and directories.
  CommandOption type_name(const std::string& name);
  CommandOption one_of(const std::vector<std::string>& values);
  /// Words that shells offer, of a value that may be another word, or a list of them.
  CommandOption offers(const std::vector<std::string>& words);
  /// A number above 0.
  CommandOption positive();
  /// A number from 0 on.
  CommandOption not_negative();
  CommandOption at_most(std::uint64_t most);
  /// The value is a list with `delimiter` between its entries; empty and repeated entries are refused.
  CommandOption lists(char delimiter);
  /// As lists(), for a target that takes several values: the entries.
  CommandOption split_at(char delimiter);
  /// The option can be repeated, with one value each time. Otherwise a list takes all words up to the next option.
  CommandOption repeatable();
  /// The option may stand without a value, and then has this one.
  CommandOption value_if_none(const std::string& value);

 private:
  CLI::Option* option_;
  const CLI::App* command_;
  Parsed* parsed_;
};

/// One option, or one word of a command, as its user sees it.
struct OptionText {
  std::string name;                ///< "--dir", or "path" for a word without dashes
  std::string value;               ///< what the help calls its value, like "DIR"; empty for a flag
  std::string help;                ///< one sentence or more, with the default in brackets
  std::vector<std::string> words;  ///< that the value can be
  bool are_all_words = false;      ///< other words are refused
  bool is_required = false;
  bool is_repeatable = false;       ///< may be given again
  bool may_lack_its_value = false;  ///< may stand without its value

  [[nodiscard]] bool is_word() const { return !name.starts_with('-'); }
};

/// The program or one of its subcommands, as its user sees it.
struct CommandText {
  std::string name;                   ///< with the program: "cairn demo save"
  std::string description;            ///< one line
  std::string footer;                 ///< lines; examples stand after the line "Example:" or "Examples:"
  std::vector<OptionText> options;    ///< in the order of --help
  std::vector<CommandText> commands;  ///< subcommands
};

/// The program or one of its subcommands.
class Subcommand {
 public:
  Subcommand(CLI::App& app, Parsed& parsed) : app_(&app), parsed_(&parsed) {}

  Subcommand add_subcommand(const std::string& name, const std::string& description);
  /// `name`: "--dir", or "path" for a word without dashes. Refuses empty values, and numbers that are not decimal or do
  /// not fit.
  CommandOption option(const std::string& name, Target target, const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help);
  /// Adds --quiet, which CommandLine::is_quiet() tells; `help` says what is still printed.
  void quiet(const std::string& help);
  /// Refuses each of `options` that is given if `holds` returns true after the parse: "--csv has no effect <when>:
  /// leave it out". `when` is like "with --async".
  void no_effect(const std::vector<std::string>& options, const std::string& when, std::function<bool()> holds);
  /// Names of the subcommands that were added.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Printed at the end of --help.
  void footer(const std::string& text);
  /// Makes it an error to choose no subcommand of this one.
  void require_subcommand();
  /// Sets the function to run when this subcommand is chosen.
  void runs(Command command);

 private:
  CLI::App* app_;
  Parsed* parsed_;
};

class CommandLine {
 public:
  /// parse() takes 'cairn help demo save' for 'cairn demo save --help'; add_subcommand() this name for the help.
  static constexpr const char* kHelp = "help";

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
  std::optional<Refusal> parse(int argc, const char* const* argv);
  /// The chosen command, after a parse() without a Refusal.
  [[nodiscard]] const Command& chosen() const { return parsed_.chosen; }
  /// Whether --quiet was given.
  [[nodiscard]] bool is_quiet() const { return parsed_.is_quiet; }
  /// The options that the chosen command has, like "--group".
  [[nodiscard]] std::vector<std::string> options_of_chosen() const;
  /// The program with all options of all subcommands, from which man pages and completions are made.
  [[nodiscard]] CommandText text() const;

 private:
  std::optional<Refusal> parse_words(int argc, const char* const* argv);

  std::unique_ptr<CLI::App> app_;
  Parsed parsed_;
};

}  // namespace cairn::app
