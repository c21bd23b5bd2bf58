// Man pages, in the macros of man(7).
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>

#include "base/text.hpp"
#include "pages.hpp"

namespace cairn::app {
namespace {

/// Text between macros: a dash is the one of the keyboard, and no line is a request.
std::string in_roff(std::string_view text) {
  std::string out;
  bool begins_line = true;
  for (const char c : text) {
    if (begins_line && (c == '.' || c == '\'')) out += "\\&";
    begins_line = c == '\n';
    if (c == '-') {
      out += "\\-";
    } else if (c == '\\') {
      out += "\\e";
    } else if (c == '\'') {
      out += "\\(aq";
    } else {
      out += c;
    }
  }
  return out;
}

std::string bold(std::string_view text) { return "\\fB" + in_roff(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + in_roff(text) + "\\fR"; }

std::string page_name(const CommandText& command) {
  std::string name = command.name;
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string option_in_roff(const OptionText& option) {
  if (option.is_word()) return italic(option.name);
  if (option.value.empty()) return bold(option.name);
  const char* const form = option.may_lack_its_value ? "{} [{}]" : "{} {}";
  return fmt::format(fmt::runtime(form), bold(option.name), italic(option.value));
}

std::string synopsis_of(const CommandText& command) {
  std::string text = bold(command.name);
  if (!command.commands.empty()) text += " " + italic("COMMAND");
  for (const OptionText& option : command.options) {
    if (option.is_word()) {
      text += option.is_required ? " " + option_in_roff(option) : fmt::format(" [{}]", option_in_roff(option));
    } else if (option.is_required) {
      text += " " + option_in_roff(option);
    }
  }
  return text + fmt::format(" [{}]...", italic("OPTION"));
}

void add_options(std::string& page, const CommandText& command, bool are_words) {
  bool is_first = true;
  for (const OptionText& option : command.options) {
    if (option.is_word() != are_words) continue;
    if (is_first) page += are_words ? ".SH ARGUMENTS\n" : ".SH OPTIONS\n";
    is_first = false;
    page += fmt::format(".TP\n{}\n{}.", option_in_roff(option), in_roff(option.help));
    if (option.are_all_words) page += " One of: " + in_roff(base::joined(option.words)) + ".";
    if (option.is_required && !are_words) page += " Required.";
    page += '\n';
  }
}

/// The footer of --help: paragraphs, then examples as they are.
void add_footer(std::string& page, const CommandText& command) {
  std::istringstream lines(command.footer);
  std::string words;
  std::string examples;
  bool are_examples = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "Example:" || line == "Examples:") {
      are_examples = true;
    } else if (are_examples) {
      examples += in_roff(line.substr(std::min(line.find_first_not_of(' '), line.size()))) + '\n';
    } else {
      words += in_roff(line) + '\n';
    }
  }
  if (!words.empty()) page += ".SH NOTES\n" + words;
  if (!examples.empty()) page += ".SH EXAMPLES\n.nf\n" + examples + ".fi\n";
}

void add_pages(std::vector<Page>& pages, const CommandText& command, const CommandText& program,
               const std::string& version) {
  const std::string name = page_name(command);
  std::string title = name;
  std::ranges::transform(title, title.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string page = fmt::format(".TH \"{}\" 1 \"\" \"{}\" \"Cairn\"\n", in_roff(title), in_roff(version));
  page += fmt::format(".SH NAME\n{} \\- {}\n", in_roff(name), in_roff(command.description));
  page += fmt::format(".SH SYNOPSIS\n{}\n", synopsis_of(command));
  std::vector<std::string> others;
  if (&command != &program) others.push_back(page_name(program));
  if (!command.commands.empty()) page += ".SH COMMANDS\n";
  for (const CommandText& each : command.commands) {
    page += fmt::format(".TP\n{}\n{}.\n", bold(each.name), in_roff(each.description));
    others.push_back(page_name(each));
  }
  add_options(page, command, true);
  add_options(page, command, false);
  add_footer(page, command);
  page += ".SH SEE ALSO\n";
  for (const std::string& other : others) {
    page += fmt::format("{}(1){}\n", bold(other), other == others.back() ? "" : ",");
  }
  pages.push_back({fmt::format("man/man1/{}.1", name), page});
  for (const CommandText& each : command.commands) add_pages(pages, each, program, version);
}

}  // namespace

std::vector<Page> man_pages(const CommandText& program, const std::string& version) {
  std::vector<Page> pages;
  add_pages(pages, program, program, version);
  return pages;
}

}  // namespace cairn::app
