#include "cli/option_words.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace cairn::cli {
namespace {

struct OptionName {
  std::string_view library;
  std::string_view command;
};

// An option of the library may have several names: a command has one of them.
constexpr OptionName kNames[] = {
    {"Options::async.cores", "--async-cores"},
    {"Options::base", "--base"},
    {"Options::engine.hints", "--hint"},
    {"Options::engine.name", "--engine"},
    {"Options::environment.record", "--environment"},
    {"Options::files.align_bytes", "--align"},
    {"Options::files.block_bytes", "--block-size"},
    {"Options::files.block_bytes", "--block"},
    {"Options::files.form", "--to"},
    {"Options::files.group", "--group"},
    {"Options::files.max_bytes", "--max-file-size"},
    {"Options::files.mode", "--mode"},
    {"Options::follow_links", "--follow-links"},
    {"Options::frozen", "--frozen"},
    {"Options::lease.wait_seconds", "--wait"},
    {"Options::no_save_optim", "--no-save-optim"},
    {"Options::overwrite", "--overwrite"},
    {"Options::quantisation.codecs", "--quant"},
    {"Options::quantisation.max_update_error", "--max-update-error"},
    {"Options::quantisation.remove_master_weight", "--remove-master-weight"},
    {"Options::quantisation.skip_save_model_weight", "--skip-save-model-weight"},
    {"Options::reuse", "--reuse"},
    {"Options::save_only", "--section"},
    {"Options::trust_index", "--trust-index"},
};

struct Phrase {
  std::string_view library;
  std::string_view command;
};

// Sentences that would be wrong without their option, and calls of the library. They are looked for after the names
// above were replaced, so that an option that the command has is not in them.
constexpr Phrase kPhrases[] = {
    {"Checkpointer::tensors() and 'cairn inspect' list", "'cairn inspect' lists"},
    {"end it first, save to another root, or let this one wait for it (Options::lease.wait_seconds)",
     "end it first, or save to another root"},
    {": name the one that goes on (Options::run_id), and set Options::allow_other_run", ": save into another root"},
    {", or set Options::allow_other_run where this run takes it over", ""},
    {", or allow it to be replaced (Options::overwrite_foreign)", ""},
    {", or go on from it by load_latest()", ""},
    {"to go on from what was there, begin with load_latest(), and else save into another root",
     "to keep what was there, save into another root"},
    {"name another step, or use load_latest(), which goes past what is damaged", "name another checkpoint"},
    {"(--overwrite, or --overwrite on the command line)", "(--overwrite)"},
};

std::vector<std::string>& options() {
  static auto* const names = new std::vector<std::string>;  // never destroyed: threads may log while the process ends
  return *names;
}

bool is_of_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// The end of an option of the library that begins at `at`, "Options::files.mode"; `at` if there is none.
std::size_t end_of_option(std::string_view text, std::size_t at) {
  static constexpr std::array<std::string_view, 6> kScopes = {
      "Options::", "LoadOptions::", "AsyncOptions::", "PruneOptions::", "Extras::", "Checkpointer::"};
  if (at > 0 && (is_of_name(text[at - 1]) || text[at - 1] == ':')) return at;
  const auto scope = std::ranges::find_if(kScopes, [&](auto each) { return text.substr(at).starts_with(each); });
  if (scope == kScopes.end()) return at;
  std::size_t end = at + scope->size();
  while (end < text.size() &&
         (is_of_name(text[end]) || (text[end] == '.' && end + 1 < text.size() && is_of_name(text[end + 1]))))
    ++end;
  return end;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// The option of this command, or "".
std::string_view option_of_command(std::string_view of_library) {
  for (const OptionName& name : kNames) {
    if (name.library == of_library && std::ranges::find(options(), name.command) != options().end())
      return name.command;
  }
  return {};
}

std::string with_options(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = end_of_option(text, at);
    const std::string_view option = end == at ? "" : option_of_command(text.substr(at, end - at));
    if (option.empty()) {
      out += text[at++];
      continue;
    }
    // "--trust-index (Options::trust_index)" names it twice.
    const std::string twice = std::string(option) + " (";
    if (out.ends_with(twice) && end < text.size() && text[end] == ')') {
      out.resize(out.size() - 2);
      at = end + 1;
      continue;
    }
    out += option;
    at = end;
  }
  return out;
}

/// Without options of the library in parentheses: "(Options::waiting, CAIRN_WATCHDOG_S)" is "(CAIRN_WATCHDOG_S)".
std::string without_asides(std::string text) {
  for (std::size_t at = 0; (at = text.find('(', at)) != std::string::npos; ++at) {
    const std::size_t end = end_of_option(text, at + 1);
    if (end == at + 1 || end == text.size()) continue;
    if (text[end] == ')') {
      const std::size_t begin = at > 0 && text[at - 1] == ' ' ? at - 1 : at;
      text.erase(begin, end + 1 - begin);
      at = begin == 0 ? 0 : begin - 1;
    } else if (std::string_view(text).substr(end).starts_with(", ")) {
      text.erase(at + 1, end + 1 - at);
    }
  }
  return text;
}

/// Without parts between semicolons that begin with an option of the library: "; LoadOptions::pad_rows would load ...".
std::string without_advice(std::string text) {
  constexpr std::string_view kBetween = "; ";
  for (std::size_t at = 0; (at = text.find(kBetween, at)) != std::string::npos;) {
    const std::size_t begin = at + kBetween.size();
    if (end_of_option(text, begin) == begin) {
      at = begin;
      continue;
    }
    text.erase(at, std::min(text.find(kBetween, begin), text.size()) - at);
  }
  return text;
}

}  // namespace

void set_command_options(std::vector<std::string> names) { options() = std::move(names); }

std::string in_words_of_command(std::string_view message) {
  std::string text = with_options(message);
  for (const Phrase& phrase : kPhrases) text = replaced(std::move(text), phrase.library, phrase.command);
  if (text.find("::") == std::string::npos) return text;
  return without_advice(without_asides(std::move(text)));
}

}  // namespace cairn::cli
