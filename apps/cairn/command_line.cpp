// The one unit that includes CLI11.
#include "command_line.hpp"

#include <CLI/CLI.hpp>

#include <fmt/core.h>

#include <sstream>
#include <type_traits>
#include <utility>

#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::app {
namespace {

// An Error of the function is one of this option.
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

// "cairn demo save", as far as the arguments got.
std::string name_of_chosen(const CLI::App& app) {
  std::string name = app.get_name();
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    name += " " + at->get_name();
  }
  return name;
}

// CLI11 misses a subcommand before it looks at the word that stands in its place.
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
  option_->check(CLI::PositiveNumber);
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
  const auto add = [&](auto& value) {
    if constexpr (std::is_pointer_v<std::remove_reference_t<decltype(value)>>) {
      return app_->add_option(name, *value, help);
    } else {
      return add_function(*app_, name, std::move(value), help);
    }
  };
  return CommandOption(*std::visit(add, target));
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
