#include "interop/paddle/ties.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interop/paddle/config.hpp"
#include "interop/paddle/families.hpp"

namespace cairn::interop {
namespace {

constexpr std::array<std::string_view, 3> kEmbeddings = {"embed_tokens.weight", "word_embeddings.weight", "wte.weight"};
constexpr std::array<std::string_view, 1> kHeads = {"lm_head.weight"};

/// "w" for "w/moment1_0", and for "w".
std::string_view parameter_of(std::string_view name) { return name.substr(0, std::min(name.rfind('/'), name.size())); }

bool is_one_of(std::string_view name, std::span<const std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) {
    return name.ends_with(end) && (name.size() == end.size() || name[name.size() - end.size() - 1] == '.');
  });
}

/// The only parameter whose name ends with one of `ends`; nothing if there are none or several.
std::optional<std::string_view> find_parameter(const Recognised& out, std::span<const std::string_view> ends) {
  std::set<std::string_view> found;
  for (const format::PlacedTensor& tensor : out.tensors) {
    if (is_one_of(parameter_of(tensor.name), ends)) found.insert(parameter_of(tensor.name));
  }
  return found.size() == 1 ? std::optional(*found.begin()) : std::nullopt;
}

const format::PlacedTensor* find_weight(const Recognised& out, std::string_view name) {
  const auto found = std::ranges::find_if(
      out.tensors, [&](const auto& tensor) { return tensor.section == "model" && tensor.name == name; });
  return found == out.tensors.end() ? nullptr : &*found;
}

/// Sections with tensors of the parameter.
std::set<std::string_view> sections_of(const Recognised& out, std::string_view parameter) {
  std::set<std::string_view> sections;
  for (const format::PlacedTensor& tensor : out.tensors) {
    if (parameter_of(tensor.name) == parameter) sections.insert(tensor.section);
  }
  return sections;
}

std::string renamed(std::string_view name, std::string_view parameter, std::string_view to) {
  return std::string(to) + std::string(name.substr(parameter.size()));
}

/// Adds all tensors of parameter `from` in these sections, and the parameter's codings, under the name `to`.
void add_name(const std::set<std::string_view>& sections, std::string_view from, std::string_view to, Recognised& out) {
  std::vector<format::StoredTensor> more;
  for (const format::PlacedTensor& tensor : out.tensors) {
    if (parameter_of(tensor.name) != from || !sections.contains(tensor.section)) continue;
    more.push_back(format::stored_tensor(tensor));
    more.back().name = renamed(tensor.name, from, to);
  }
  for (format::StoredTensor& tensor : more) out.add(std::move(tensor));
  std::vector<QuantisedMoments> codings;
  for (const QuantisedMoments& moments : out.quantised) {
    if (parameter_of(moments.first) != from || !sections.contains(moments.section)) continue;
    QuantisedMoments& coding = codings.emplace_back(moments);
    for (std::string* name : {&coding.first, &coding.second}) *name = renamed(*name, from, to);
    for (std::string& part : coding.parts) part = renamed(part, from, to);
  }
  out.quantised.insert(out.quantised.end(), codings.begin(), codings.end());
}

}  // namespace

void add_tied(Reading& reading, Recognised& out) {
  const auto embeddings = find_parameter(out, kEmbeddings);
  const auto head = find_parameter(out, kHeads);
  if (!embeddings || !head || !is_tied(facts_of(config_of(reading), *embeddings))) return;
  const format::PlacedTensor* const first = find_weight(out, *embeddings);
  const format::PlacedTensor* const second = find_weight(out, *head);
  if (first != nullptr && second != nullptr && !std::ranges::equal(first->shape, second->shape)) return;
  const std::set<std::string_view> of_embeddings = sections_of(out, *embeddings);
  const std::set<std::string_view> of_head = sections_of(out, *head);
  const auto add_to_others = [&](const auto& having, const auto& lacking, std::string_view from, std::string_view to) {
    std::set<std::string_view> sections;
    std::ranges::set_difference(having, lacking, std::inserter(sections, sections.end()));
    add_name(sections, from, to, out);
    for (const std::string_view section : sections) {
      reading.warn(fmt::format("section {}: what {} has is had as {} as well (tie_word_embeddings)", shown(section),
                               in_quotes(from), in_quotes(to)));
    }
  };
  add_to_others(of_embeddings, of_head, *embeddings, *head);
  add_to_others(of_head, of_embeddings, *head, *embeddings);
}

}  // namespace cairn::interop
