#include "format/environment.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <span>

#include "base/json.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::format {
namespace {

using base::Json;

constexpr std::size_t kNamedHosts = 4;  ///< in a line about a difference

struct Text {
  const char* key;
  const char* words;
  std::string Environment::*member;
};
constexpr Text kTexts[] = {
    {"tool", "Cairn", &Environment::tool},      {"mpi", "MPI library", &Environment::mpi},
    {"cuda", "CUDA", &Environment::cuda},       {"nvidia_driver", "NVIDIA driver", &Environment::nvidia_driver},
    {"hdf5", "HDF5", &Environment::hdf5},       {"compiler", "compiler", &Environment::compiler},
    {"kernel", "kernel", &Environment::kernel}, {"file_system", "file system", &Environment::file_system}};

struct Number {
  const char* key;
  std::uint64_t Environment::*member;
};
constexpr Number kNumbers[] = {{"ranks", &Environment::ranks},
                               {"nodes", &Environment::nodes},
                               {"fewest_ranks_per_node", &Environment::fewest_ranks_per_node},
                               {"most_ranks_per_node", &Environment::most_ranks_per_node}};

void read_text(const Json& document, std::string_view key, std::string& text) {
  const Json* const value = document.find(key);
  if (value != nullptr && value->is_string()) text = value->text();
}

void read_texts(const Json& document, std::string_view key, std::vector<std::string>& texts) {
  const Json* const value = document.find(key);
  if (value == nullptr || !value->is_array()) return;
  for (const Json& one : value->elements()) {
    if (one.is_string()) texts.push_back(one.text());
  }
}

std::string shown(const std::string& text) { return text.empty() ? "none" : base::one_line(text); }

std::string words_of_ranks(const Environment& environment) {
  const std::uint64_t fewest = environment.fewest_ranks_per_node;
  const std::uint64_t most = environment.most_ranks_per_node;
  std::string words = base::counted(environment.ranks, "rank");
  if (environment.nodes == 0) return words;
  words += fmt::format(" on {}", base::counted(environment.nodes, "node"));
  if (environment.nodes == 1) return words;
  return words + (fewest == most ? fmt::format(", {} on each", most) : fmt::format(", {} to {} on each", fewest, most));
}

std::string words_of_hosts(const Environment& environment) {
  const std::size_t named = std::min(environment.hosts.size(), kNamedHosts);
  std::string words = base::one_line(base::joined(std::span(environment.hosts).first(named)));
  if (environment.nodes > named) words += fmt::format(" and {} more", environment.nodes - named);
  return words;
}

void add_change(std::vector<std::string>& changes, const std::string& what, const std::string& saved,
                const std::string& now) {
  if (saved != now) changes.push_back(fmt::format("{}: saved with {}, now {}", what, shown(saved), shown(now)));
}

}  // namespace

std::string encode_environment(const Environment& environment) {
  Json document = Json::object();
  document["version"] = kEnvironmentVersion;
  for (const Text& text : kTexts) {
    if (!(environment.*text.member).empty()) document[text.key] = environment.*text.member;
  }
  for (const Number& number : kNumbers) document[number.key] = environment.*number.member;
  const std::size_t named = std::min(environment.hosts.size(), kEnvironmentHosts);
  document["hosts"] =
      Json::array_of(std::span(environment.hosts).first(named), [](const std::string& host) { return Json(host); });
  if (!environment.git_revision.empty()) document["git_revision"] = environment.git_revision;
  if (!environment.values.empty()) document["values"] = environment.values;
  if (!environment.command_line.empty()) document["command_line"] = environment.command_line;
  return document.dump({.indent = 2, .sorted = true, .ascii = true, .is_lenient = true}) + "\n";
}

Environment parse_environment(std::string_view text, std::string_view path) {
  const Json document = Json::parse(text, path);
  const Json* const version = document.find("version");
  if (version == nullptr || !version->is_number_unsigned()) {
    base::fail_format(path, "it is not an object with a version");
  }
  if (version->whole_number() > static_cast<std::uint64_t>(kEnvironmentVersion)) {
    base::fail_format(path, fmt::format("it is of version {}, and this Cairn knows {}", version->whole_number(),
                                        kEnvironmentVersion));
  }
  Environment environment;
  for (const Text& one : kTexts) read_text(document, one.key, environment.*one.member);
  for (const Number& one : kNumbers) {
    const Json* const value = document.find(one.key);
    if (value != nullptr && value->is_number_unsigned()) environment.*one.member = value->whole_number();
  }
  read_texts(document, "hosts", environment.hosts);
  read_text(document, "git_revision", environment.git_revision);
  if (const Json* const values = document.find("values"); values != nullptr && values->is_object()) {
    for (const Json::Member& value : values->items()) {
      if (value.value.is_string()) environment.values[value.key] = value.value.text();
    }
  }
  read_texts(document, "command_line", environment.command_line);
  return environment;
}

std::vector<std::string> environment_lines(const Environment& environment) {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& what, const std::string& text) {
    if (!text.empty()) lines.push_back(fmt::format("{}: {}", what, base::one_line(text)));
  };
  for (const Text& text : kTexts) add(text.words, environment.*text.member);
  if (environment.ranks != 0) add("ranks", words_of_ranks(environment));
  add("hosts", words_of_hosts(environment));
  add("git revision", environment.git_revision);
  for (const auto& [key, value] : environment.values) add(base::printable(key), value);
  add("command line", base::joined(environment.command_line, " "));
  return lines;
}

std::vector<std::string> environment_changes(const Environment& saved, const Environment& now) {
  std::vector<std::string> changes;
  for (const Text& text : kTexts) add_change(changes, text.words, saved.*text.member, now.*text.member);
  const std::string ranks = words_of_ranks(saved);
  if (const std::string ranks_now = words_of_ranks(now); ranks != ranks_now) {
    changes.push_back(fmt::format("ranks: saved by {}, now {}", ranks, ranks_now));
  }
  if (saved.hosts != now.hosts || saved.nodes != now.nodes) {
    changes.push_back(fmt::format("hosts: saved on {}, now {}", words_of_hosts(saved), words_of_hosts(now)));
  }
  if (!now.git_revision.empty()) add_change(changes, "git revision", saved.git_revision, now.git_revision);
  if (now.values.empty()) return changes;
  std::set<std::string> keys;
  for (const auto& one : saved.values) keys.insert(one.first);
  for (const auto& one : now.values) keys.insert(one.first);
  for (const std::string& key : keys) {
    const auto text_in = [&](const Environment& of) {
      const auto found = of.values.find(key);
      return found == of.values.end() ? std::string() : found->second;
    };
    add_change(changes, base::printable(key), text_in(saved), text_in(now));
  }
  return changes;
}

}  // namespace cairn::format
