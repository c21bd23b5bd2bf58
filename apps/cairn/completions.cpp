// Completions for bash, zsh and fish.
//
// The name that --help gives a value says how it is completed: DIR with directories, FILE and PATH with files and
// directories, any other with the words that it can be.
#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "base/text.hpp"
#include "pages.hpp"

namespace cairn::app {
namespace {

constexpr const char* kNote = "made from the options of the command when it was built";

bool is_directory(const OptionText& option) { return option.value == "DIR"; }
bool is_path(const OptionText& option) { return option.value == "FILE" || option.value == "PATH"; }

std::vector<const OptionText*> options_of(const CommandText& command) {
  std::vector<const OptionText*> out;
  for (const OptionText& option : command.options) {
    if (!option.is_word()) out.push_back(&option);
  }
  return out;
}

std::vector<const OptionText*> words_of(const CommandText& command) {
  std::vector<const OptionText*> out;
  for (const OptionText& option : command.options) {
    if (option.is_word()) out.push_back(&option);
  }
  return out;
}

/// The last word of "cairn demo save".
std::string own_name(const CommandText& command) { return command.name.substr(command.name.rfind(' ') + 1); }

std::vector<std::string> names_of(const std::vector<CommandText>& commands) {
  std::vector<std::string> names;
  for (const CommandText& command : commands) names.push_back(own_name(command));
  return names;
}

/// The command and all below it.
std::vector<const CommandText*> all_of(const CommandText& command) {
  std::vector<const CommandText*> all = {&command};
  for (const CommandText& each : command.commands) {
    const std::vector<const CommandText*> more = all_of(each);
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

/// `text` with `before` in front of each of `characters`.
std::string escaped(std::string_view text, std::string_view characters, std::string_view before = "\\") {
  std::string out;
  for (const char c : text) {
    if (characters.find(c) != std::string_view::npos) out += before;
    out += c;
  }
  return out;
}

// bash

std::string kind_in_bash(const OptionText& option) {
  if (is_directory(option)) return "kind=directories";
  if (is_path(option)) return "kind=files";
  if (option.words.empty()) return "kind=other";
  return fmt::format("kind=words values='{}'", base::joined(option.words, " "));
}

std::string bash_completion(const CommandText& program) {
  std::string commands;
  std::string options;
  std::string arguments;
  std::string names;
  for (const CommandText* command : all_of(program)) {
    if (command != &program) commands += fmt::format("{}'{}'", commands.empty() ? "" : " | ", command->name);
    std::vector<std::string> all;
    for (const OptionText* option : options_of(*command)) {
      all.push_back(option->name);
      if (option->value.empty() || option->may_lack_its_value) continue;
      options += fmt::format("    '{} {}') {} ;;\n", command->name, option->name, kind_in_bash(*option));
    }
    names += fmt::format("    '{}') values='{}' ;;\n", command->name, base::joined(all, " "));
    if (!command->commands.empty()) {
      arguments += fmt::format("    '{} 0') kind=words values='{}' ;;\n", command->name,
                               base::joined(names_of(command->commands), " "));
    }
    std::size_t place = 0;
    for (const OptionText* word : words_of(*command))
      arguments += fmt::format("    '{} {}') {} ;;\n", command->name, place++, kind_in_bash(*word));
  }
  return fmt::format(R"(# Completion of cairn in bash, {0}.

# What follows an option: sets kind and values; no kind: the option has no value.
_cairn_option() {{
  kind= values=
  case "$1 $2" in
{1}  esac
}}

# What stands at a place without an option.
_cairn_argument() {{
  kind= values=
  case "$1 $2" in
{2}  esac
}}

_cairn() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} command=cairn pending= place=0 kind= values= word i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${{COMP_WORDS[i]}}
    if [[ $word == '=' ]]; then
      continue
    elif [[ -n $pending ]]; then
      pending=
    elif [[ $word == -* ]]; then
      _cairn_option "$command" "$word"
      pending=$kind
    else
      case "$command $word" in
        {3}) command+=" $word" ;;
        *) ((++place)) ;;
      esac
    fi
  done
  if [[ -z $pending ]]; then
    _cairn_argument "$command" "$place"
    if [[ -z $kind || $cur == -* ]]; then
      kind=words
      case "$command" in
{4}      esac
    fi
  fi
  [[ $cur == '=' ]] && cur=
  COMPREPLY=()
  case $kind in
    words) mapfile -t COMPREPLY < <(compgen -W "$values" -- "$cur") ;;
    directories)
      compopt -o filenames 2> /dev/null
      mapfile -t COMPREPLY < <(compgen -d -- "$cur")
      ;;
    files)
      compopt -o filenames 2> /dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$cur")
      ;;
    other)
      if [[ $cur == @* ]]; then
        compopt -o filenames 2> /dev/null
        mapfile -t COMPREPLY < <(compgen -f -P @ -- "${{cur#@}}")
      fi
      ;;
  esac
}}
complete -F _cairn cairn
)",
                     kNote, options, arguments, commands, names);
}

// zsh

/// In single quotes, between brackets or colons of a specification for _arguments.
std::string in_zsh(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\'' ? "'\\''" : escaped(std::string_view(&c, 1), "\\[]:$`");
  return out;
}

std::string action_in_zsh(const OptionText& option) {
  if (is_directory(option)) return "_files -/";
  if (is_path(option)) return "_files";
  return option.words.empty() ? " " : "(" + base::joined(option.words, " ") + ")";
}

std::string option_in_zsh(const OptionText& option) {
  const std::string help = in_zsh(option.help);
  if (option.value.empty()) return fmt::format("'{}[{}]'", option.name, help);
  if (option.may_lack_its_value) return fmt::format("'{}=-[{}]::{}: '", option.name, help, in_zsh(option.value));
  return fmt::format("'{}{}=[{}]:{}:{}'", option.is_repeatable ? "*" : "", option.name, help, in_zsh(option.value),
                     action_in_zsh(option));
}

std::string function_in_zsh(const CommandText& command) {
  std::string name = "_" + command.name;
  std::ranges::replace(name, ' ', '_');
  return name;
}

std::string zsh_of(const CommandText& command) {
  std::string specifications;
  for (const OptionText* option : options_of(command))
    specifications += fmt::format(" \\\n    {}", option_in_zsh(*option));
  for (const OptionText* word : words_of(command)) {
    specifications +=
        fmt::format(" \\\n    '{}:{}:{}'", word->is_required ? "" : ":", word->name, action_in_zsh(*word));
  }
  const std::string function = function_in_zsh(command);
  if (command.commands.empty()) return fmt::format("{}() {{\n  _arguments{}\n}}\n\n", function, specifications);
  std::string names;
  std::string calls;
  for (const CommandText& each : command.commands) {
    names += fmt::format("        '{}:{}'\n", own_name(each), in_zsh(each.description));
    calls += fmt::format("        {}) {} ;;\n", own_name(each), function_in_zsh(each));
  }
  return fmt::format(R"({0}() {{
  local curcontext="$curcontext" state line
  typeset -A opt_args
  _arguments -C{1} \
    '1: :->command' \
    '*::: :->rest'
  case $state in
    command)
      local -a commands
      commands=(
{2}      )
      _describe -t commands command commands
      ;;
    rest)
      words=($line[1] "${{words[@]}}")
      ((CURRENT += 1))
      case $line[1] in
{3}      esac
      ;;
  esac
}}

)",
                     function, specifications, names, calls);
}

std::string zsh_completion(const CommandText& program) {
  std::string text = fmt::format("#compdef cairn\n# Completion of cairn in zsh, {}.\n\n", kNote);
  for (const CommandText* command : all_of(program)) text += zsh_of(*command);
  return text + "if [ \"$funcstack[1]\" = _cairn ]; then\n  _cairn \"$@\"\nelse\n  compdef _cairn cairn\nfi\n";
}

// fish

std::string in_fish(std::string_view text) { return "'" + escaped(text, "\\'") + "'"; }

std::string value_in_fish(const OptionText& option) {
  if (is_directory(option)) return " -x -a '(__fish_complete_directories)'";
  if (is_path(option)) return " -r -F";
  return option.words.empty() ? " -x" : " -x -a " + in_fish(base::joined(option.words, " "));
}

/// `when`: the condition under which the words of this command are completed.
std::string fish_of(const CommandText& command, const std::string& when, const std::string& before) {
  const std::string start = fmt::format("complete -c cairn -n {}", in_fish(when));
  std::string text;
  for (const CommandText& each : command.commands)
    text += fmt::format("{} -a {} -d {}\n", start, own_name(each), in_fish(each.description));
  for (const OptionText* option : options_of(command)) {
    const bool has_value = !option->value.empty() && !option->may_lack_its_value;
    text += fmt::format("{} -l {}{} -d {}\n", start, option->name.substr(2), has_value ? value_in_fish(*option) : "",
                        in_fish(option->help));
  }
  for (const OptionText* word : words_of(command)) {
    if (is_directory(*word)) text += start + " -a '(__fish_complete_directories)'\n";
    if (is_path(*word)) text += start + " -F\n";
    if (!word->words.empty()) text += fmt::format("{} -a {}\n", start, in_fish(base::joined(word->words, " ")));
  }
  for (const CommandText& each : command.commands) {
    const std::string seen = before + "__fish_seen_subcommand_from " + own_name(each);
    std::string inside = seen;
    if (!each.commands.empty()) {
      inside += "; and not __fish_seen_subcommand_from " + base::joined(names_of(each.commands), " ");
    }
    text += fish_of(each, inside, seen + "; and ");
  }
  return text;
}

std::string fish_completion(const CommandText& program) {
  return fmt::format("# Completion of cairn in fish, {}.\n\ncomplete -c cairn -f\n{}", kNote,
                     fish_of(program, "__fish_use_subcommand", ""));
}

}  // namespace

std::vector<Page> completions(const CommandText& program) {
  return {{"bash-completion/completions/cairn", bash_completion(program)},
          {"zsh/site-functions/_cairn", zsh_completion(program)},
          {"fish/vendor_completions.d/cairn.fish", fish_completion(program)}};
}

}  // namespace cairn::app
