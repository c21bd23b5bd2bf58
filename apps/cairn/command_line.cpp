// The only source file of this program that includes CLI11.
#include "command_line.hpp"
#include "base/digits.hpp"

#include <CLI/CLI.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::app {
namespace {

// Adds an option that calls `take`. An Error thrown by `take` becomes an error of the option.
template <class Value>
CLI::Option* add_function(CLI::App& app, const std::string& name, std::function<void(const Value&)> take,
                          const std::string& help) {
  const auto checked = [take = std::move(take), name](const Value& value) {
    try {
      take(value);
    } catch (const Error& error) {
      throw CLI::ValidationError(name, error.what());
    }
  };
  return app.add_option_function<Value>(name, checked, help);
}

// Decimal numbers only: CLI11 reads 2^64 and -1 as 2^64 - 1, and 010 as 8.
template <class Number>
Number number_of(const std::string& text) {
  Number number{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_all = end == text.data() + text.size();
  const auto refuse = [&](const std::string& why) {
    return Error(ErrorKind::kUsage, fmt::format("'{}' {}", base::printable(text), why));
  };
  if constexpr (std::is_floating_point_v<Number>) {
    if (status != std::errc() || !is_all || !std::isfinite(static_cast<double>(number)))
      throw refuse("is not a finite number; write it like 0.01");
  } else {
    using Limits = std::numeric_limits<Number>;
    if (status == std::errc::result_out_of_range && is_all) {
      throw refuse(fmt::format("is out of range; give a whole number from {} to {}", Limits::min(), Limits::max()));
    }
    if (status != std::errc() || !is_all) {
      throw refuse(std::is_signed_v<Number> ? "is not a whole number" : "is not a whole number from 0 on");
    }
  }
  return number;
}

// The problem of a number that is not `is_good`. Accepts values that are not numbers: number_of() refuses them.
template <class IsGood>
std::string problem_of_number(const std::string& text, IsGood is_good, const std::string& problem) {
  const auto number = base::number_in<double>(text);
  if (!number || std::isnan(*number) || is_good(*number)) return {};
  return fmt::format("{} {}", text, problem);
}

// CLI11 reads strings and paths; numbers are read here.
struct AddOption {
  CLI::App& app;
  const std::string& name;
  const std::string& help;

  CLI::Option* operator()(std::string* value) const { return app.add_option(name, *value, help); }
  CLI::Option* operator()(std::filesystem::path* value) const { return app.add_option(name, *value, help); }
  CLI::Option* operator()(std::vector<std::string>* values) const { return app.add_option(name, *values, help); }
  template <class Number>
  CLI::Option* operator()(Number* value) const {
    return add_function<std::string>(
        app, name, [value](const auto& text) { *value = number_of<Number>(text); }, help);
  }
  template <class Number>
  CLI::Option* operator()(std::optional<Number>* value) const {
    return add_function<std::string>(
        app, name, [value](const auto& text) { *value = number_of<Number>(text); }, help);
  }
  template <class Number>
  CLI::Option* operator()(std::vector<Number>* values) const {
    const auto take = [values](const std::vector<std::string>& texts) {
      for (const std::string& text : texts) values->push_back(number_of<Number>(text));
    };
    return add_function<std::vector<std::string>>(app, name, take, help);
  }
  template <class Value>
  CLI::Option* operator()(std::function<void(const Value&)>& take) const {
    return add_function(app, name, std::move(take), help);
  }
};

// An empty value usually comes from an unset variable in a script.
std::string problem_of_empty(const std::string& text) { return text.empty() ? "the value is empty" : ""; }
std::string problem_of_empty_path(const std::string& text) { return text.empty() ? "the path is empty" : ""; }

// The program's name and the chosen subcommands, as far as they were parsed: "cairn demo save".
std::string name_of_chosen(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    name += " " + at->get_name();
  }
  return name;
}

/// Insertions, deletions, replacements and exchanges of neighbours that make `b` of `a`.
std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> edits(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        edits[i][j] = i + j;
        continue;
      }
      edits[i][j] =
          std::min({edits[i - 1][j] + 1, edits[i][j - 1] + 1, edits[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool is_exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (is_exchanged) edits[i][j] = std::min(edits[i][j], edits[i - 2][j - 2] + 1);
    }
  }
  return edits[a.size()][b.size()];
}

/// ": did you mean 'verify'?" with the nearest of the names, or "" if all differ much.
std::string nearest_to(const std::string& word, const std::vector<std::string>& names) {
  constexpr std::size_t kLettersPerEdit = 3;
  std::size_t fewest = word.size() / kLettersPerEdit + 1;
  const std::string* nearest = nullptr;
  for (const std::string& name : names) {
    const std::size_t edits = word.size() > 2 && name.starts_with(word) ? 0 : edits_between(word, name);
    if (edits >= fewest) continue;
    fewest = edits;
    nearest = &name;
  }
  return nearest == nullptr ? "" : fmt::format(": did you mean '{}'?", *nearest);
}

std::vector<std::string> names_of_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// The subcommand with this name, or null.
const CLI::App* command_called(const std::string& name, const CLI::App& owner) {
  const std::vector<const CLI::App*> commands = owner.get_subcommands({});
  const auto found = std::ranges::find(commands, name, [](const CLI::App* command) { return command->get_name(); });
  return found == commands.end() ? nullptr : *found;
}

/// The problem of a word that stands where a subcommand could.
std::string problem_of_command(const std::string& word, const CLI::App& owner) {
  std::vector<std::string> names;
  for (const CLI::App* command : owner.get_subcommands({})) names.push_back(command->get_name());
  if (names.empty()) return fmt::format("unexpected argument '{}'", base::printable(word));
  return fmt::format("unknown subcommand '{}'{}", base::printable(word), nearest_to(word, names));
}

std::string see_help_of(const CLI::App& app) { return fmt::format(" (see {} --help)", name_of_chosen(app)); }

/// The problem of a word that no option or subcommand takes: of an option, if there is one among these words, since the
/// value of an unknown option is unknown too.
std::string problem_of_unknown(const CLI::App& owner) {
  const std::vector<std::string> words = owner.remaining(false);
  const auto option = std::ranges::find_if(words, [](const std::string& word) { return word.starts_with('-'); });
  if (option != words.end()) {
    const std::string name = option->substr(0, option->find('='));
    return fmt::format("unknown option '{}'{}", base::printable(name), nearest_to(name, names_of_options(owner)));
  }
  return problem_of_command(words.front(), owner);
}

/// The first empty or repeated entry of a list, as an error; empty: there is none. CLI11 drops empty entries, and takes
/// the next option for the value of a list without entries.
std::string problem_of_lists(const std::vector<std::string>& words, const std::vector<Parsed::List>& lists) {
  std::map<std::string, std::set<std::string>> entries;  // by option, which may be repeated
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    const auto list = std::ranges::find_if(
        lists, [&](const Parsed::List& each) { return each.command == words.front() && each.option == name; });
    if (list == lists.end()) continue;
    const bool is_next = name.size() == words[i].size();
    if (is_next && i + 1 == words.size()) continue;
    const std::string text = is_next ? words[i + 1] : words[i].substr(name.size() + 1);
    if (text.empty() || text.starts_with("--")) continue;
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find(list->delimiter, at), text.size());
      const std::string entry = text.substr(at, end - at);
      at = end + 1;
      if (entry.empty()) return fmt::format("{} '{}' has an empty entry: leave it out", name, base::printable(text));
      if (entries[name].insert(entry).second) continue;
      return fmt::format("{} has '{}' twice: give it once", name, base::printable(entry));
    }
  }
  return {};
}

/// "--size is given twice", or "" if no option is given more often than it can be.
std::string problem_of_repeated(const CLI::App& app) {
  for (const CLI::App* owner = &app;; owner = owner->get_subcommands().front()) {
    for (const CLI::Option* option : owner->get_options()) {
      const bool takes_one =
          option->get_expected_max() == 1 && option->get_multi_option_policy() == CLI::MultiOptionPolicy::Throw;
      if (!takes_one || option->count() < 2 || option->get_positional()) continue;
      const std::string times = option->count() == 2 ? "twice" : fmt::format("{} times", option->count());
      return fmt::format("{} is given {}: give it once", option->get_name(), times);
    }
    if (owner->get_subcommands().empty()) return {};
  }
}

// CLI11 reports a missing argument before it looks at the unknown word in its place.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const std::string problem = problem_of_repeated(app);
    return problem.empty() ? error.what() : problem;
  }
  const bool is_of_words = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr ||
                           dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (!is_of_words) return error.what();
  for (const CLI::App* owner = &app;; owner = owner->get_subcommands().front()) {
    if (!owner->remaining(false).empty()) return problem_of_unknown(*owner);
    if (owner->get_subcommands().empty()) return error.what();
  }
}

OptionText text_of(const CLI::Option& option, const Parsed& parsed) {
  OptionText text;
  text.name = option.get_positional() ? option.get_name(true) : "--" + option.get_lnames().front();
  text.help = option.get_description();
  if (option.get_type_size() != 0) text.value = option.get_type_name().substr(0, option.get_type_name().find(':'));
  if (const auto found = parsed.words.find(&option); found != parsed.words.end()) {
    text.words = found->second.words;
    text.are_all_words = found->second.are_all;
  }
  text.is_required = option.get_required();
  text.is_repeatable = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  text.may_lack_its_value = !text.value.empty() && option.get_expected_min() == 0;
  return text;
}

CommandText text_of(const CLI::App& app, const std::string& before, const Parsed& parsed) {
  CommandText text;
  text.name = before + app.get_name();
  text.description = app.get_description();
  text.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) text.options.push_back(text_of(*option, parsed));
  for (const CLI::App* command : app.get_subcommands({}))
    text.commands.push_back(text_of(*command, text.name + " ", parsed));
  return text;
}

/// The first given option that has no effect, as an error; empty: every given option has an effect.
std::string problem_of_rules(const std::vector<Parsed::Rule>& rules) {
  for (const Parsed::Rule& rule : rules) {
    if (!rule.command->parsed() || !rule.holds()) continue;
    for (const std::string& option : rule.options) {
      if (rule.command->count(option) == 0) continue;
      return fmt::format("{} has no effect {}: leave it out", option, rule.when);
    }
  }
  return {};
}

}  // namespace

CommandOption CommandOption::required() {
  option_->required();
  return *this;
}

CommandOption CommandOption::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

CommandOption CommandOption::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  parsed_->words[option_] = {values, true};
  return *this;
}

CommandOption CommandOption::offers(const std::vector<std::string>& words) {
  parsed_->words[option_] = {words, false};
  return *this;
}

CommandOption CommandOption::positive() {
  const auto is_good = [](double number) { return number > 0; };
  option_->check([is_good](const std::string& text) { return problem_of_number(text, is_good, "is not above 0"); });
  return *this;
}

CommandOption CommandOption::not_negative() {
  const auto is_good = [](double number) { return number >= 0; };
  option_->check([is_good](const std::string& text) { return problem_of_number(text, is_good, "is below 0"); });
  return *this;
}

CommandOption CommandOption::at_most(std::uint64_t most) {
  option_->check([most](const std::string& text) {
    const auto is_good = [most](double number) { return number <= static_cast<double>(most); };
    return problem_of_number(text, is_good, fmt::format("is more than {}", most));
  });
  return *this;
}

CommandOption CommandOption::lists(char delimiter) {
  parsed_->lists.push_back({command_->get_name(), option_->get_name(), delimiter});
  return *this;
}

CommandOption CommandOption::split_at(char delimiter) {
  option_->delimiter(delimiter);
  return lists(delimiter);
}

CommandOption CommandOption::repeatable() {
  option_->expected(1)->take_all();
  return *this;
}

CommandOption CommandOption::value_if_none(const std::string& value) {
  option_->expected(0, 1)->default_str(value);
  return *this;
}

Subcommand Subcommand::add_subcommand(const std::string& name, const std::string& description) {
  return {*app_->add_subcommand(name, description), *parsed_};
}

CommandOption Subcommand::option(const std::string& name, Target target, const std::string& help) {
  const bool is_path = std::holds_alternative<std::filesystem::path*>(target);
  CLI::Option* option = std::visit(AddOption{*app_, name, help}, target);
  option->check(is_path ? problem_of_empty_path : problem_of_empty);
  return {*option, *app_, *parsed_};
}

void Subcommand::flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

void Subcommand::quiet(const std::string& help) { flag("--quiet", parsed_->is_quiet, help); }

void Subcommand::no_effect(const std::vector<std::string>& options, const std::string& when,
                           std::function<bool()> holds) {
  parsed_->rules.push_back({app_, options, when, std::move(holds)});
}

std::vector<std::string> Subcommand::names() const {
  std::vector<std::string> names;
  for (const CLI::App* command : static_cast<const CLI::App*>(app_)->get_subcommands({}))
    names.push_back(command->get_name());
  return names;
}

void Subcommand::footer(const std::string& text) { app_->footer(text); }

void Subcommand::require_subcommand() { app_->require_subcommand(1); }

void Subcommand::runs(Command command) {
  app_->callback([parsed = parsed_, command = std::move(command)] { parsed->chosen = command; });
}

CommandLine::CommandLine(const std::string& name, const std::string& description)
    : app_(std::make_unique<CLI::App>(description, name)) {}

CommandLine::~CommandLine() = default;

Subcommand CommandLine::program() { return {*app_, parsed_}; }

void CommandLine::version(std::function<std::string()> text, const std::string& help) {
  app_->set_version_flag("--version", std::move(text), help);
}

std::vector<std::string> CommandLine::options_of_chosen() const {
  const CLI::App* command = app_.get();
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  return names_of_options(*command);
}

CommandText CommandLine::text() const { return text_of(*app_, "", parsed_); }

std::optional<CommandLine::Refusal> CommandLine::parse(int argc, const char* const* argv) {
  std::vector<const char*> words(argv, argv + argc);
  const bool asks_for_help =
      argc > 1 && words[1] == std::string_view(kHelp) &&
      std::none_of(words.begin() + 2, words.end(), [](const char* word) { return *word == '-'; });
  if (!asks_for_help) return parse_words(argc, argv);
  const CLI::App* command = app_.get();
  for (auto word = words.begin() + 2; word != words.end(); ++word) {
    const CLI::App* const next = command_called(*word, *command);
    if (next == nullptr) return Refusal{true, problem_of_command(*word, *command) + see_help_of(*app_)};
    command = next;
  }
  words.erase(words.begin() + 1);
  words.push_back("--help");
  return parse_words(static_cast<int>(words.size()), words.data());
}

std::optional<CommandLine::Refusal> CommandLine::parse_words(int argc, const char* const* argv) {
  const auto see_help = [&](const std::string& problem) { return Refusal{true, problem + see_help_of(*app_)}; };
  try {
    const std::string problem_of_list = problem_of_lists({argv + 1, argv + argc}, parsed_.lists);
    if (!problem_of_list.empty())
      return Refusal{true, fmt::format("{} (see cairn {} --help)", problem_of_list, argv[1])};
    app_->parse(argc, argv);
    const std::string problem = problem_of_rules(parsed_.rules);
    return problem.empty() ? std::nullopt : std::optional(see_help(problem));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      std::ostringstream text;
      app_->exit(error, text, text);
      std::string lines = text.str();
      while (lines.ends_with('\n')) lines.pop_back();
      return Refusal{false, lines};
    }
    return see_help(explain(*app_, error));
  }
}

}  // namespace cairn::app
