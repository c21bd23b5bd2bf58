// The only source file of this program that includes CLI11.
#include "command_line.hpp"
#include "base/digits.hpp"

#include <CLI/CLI.hpp>

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>
#include <system_error>
#include <type_traits>
#include <utility>

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
    if (status != std::errc() || !is_all || !std::isfinite(number))
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

// Accepts values that are not numbers: number_of() refuses them.
std::string problem_of_positive(const std::string& text) {
  const auto number = base::number_in<double>(text);
  if (!number || *number > 0 || std::isnan(*number)) return {};
  return fmt::format("{} is not above 0", text);
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

// CLI11 reports a missing subcommand before it looks at the unknown word in its place.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> extra = app.remaining(true);
  if (dynamic_cast<const CLI::RequiredError*>(&error) == nullptr || extra.empty()) return error.what();
  return fmt::format("{}; unknown subcommand '{}'", error.what(), base::printable(extra.front()));
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
  return *this;
}

CommandOption CommandOption::positive() {
  option_->check(problem_of_positive);
  return *this;
}

CommandOption CommandOption::split_at(char delimiter) {
  option_->delimiter(delimiter);
  return *this;
}

CommandOption CommandOption::repeatable() {
  option_->expected(1)->take_all();
  return *this;
}

Subcommand Subcommand::add_subcommand(const std::string& name, const std::string& description) {
  return {*app_->add_subcommand(name, description), *chosen_};
}

CommandOption Subcommand::option(const std::string& name, Target target, const std::string& help) {
  const bool is_path = std::holds_alternative<std::filesystem::path*>(target);
  CLI::Option* option = std::visit(AddOption{*app_, name, help}, target);
  option->check(is_path ? problem_of_empty_path : problem_of_empty);
  return CommandOption(*option);
}

void Subcommand::flag(const std::string& name, bool& value, const std::string& help) {
  app_->add_flag(name, value, help);
}

void Subcommand::footer(const std::string& text) { app_->footer(text); }

void Subcommand::require_subcommand() { app_->require_subcommand(1); }

void Subcommand::runs(Command command) {
  app_->callback([chosen = chosen_, command = std::move(command)] { *chosen = command; });
}

CommandLine::CommandLine(const std::string& name, const std::string& description)
    : app_(std::make_unique<CLI::App>(description, name)) {}

CommandLine::~CommandLine() = default;

Subcommand CommandLine::program() { return {*app_, chosen_}; }

void CommandLine::version(std::function<std::string()> text, const std::string& help) {
  app_->set_version_flag("--version", std::move(text), help);
}

std::optional<CommandLine::Refusal> CommandLine::parse(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      std::ostringstream text;
      app_->exit(error, text, text);
      std::string lines = text.str();
      while (lines.ends_with('\n')) lines.pop_back();
      return Refusal{false, lines};
    }
    return Refusal{true, fmt::format("{} (see {} --help)", explain(*app_, error), name_of_chosen(*app_))};
  }
}

}  // namespace cairn::app
