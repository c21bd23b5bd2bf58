#include "interop/paddle/ties.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interop/paddle/config.hpp"

namespace cairn::interop {
namespace {

constexpr std::array<std::string_view, 3> kEmbeddings = {"embed_tokens.weight", "word_embeddings.weight", "wte.weight"};
constexpr std::array<std::string_view, 1> kHeads = {"lm_head.weight"};

/// "w" of "w/moment1_0", and of "w".
std::string_view parameter_of(std::string_view name) { return name.substr(0, std::min(name.rfind('/'), name.size())); }

bool is_one_of(std::string_view name, std::span<const std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) {
    return name.ends_with(end) && (name.size() == end.size() || name[name.size() - end.size() - 1] == '.');
  });
}

/// The only parameter of such a name; nothing where there are none or several.
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

bool has_parameter(const Recognised& out, std::string_view section, std::string_view parameter) {
  return std::ranges::any_of(out.tensors, [&](const auto& tensor) {
    return tensor.section == section && parameter_of(tensor.name) == parameter;
  });
}

std::string renamed(std::string_view name, std::string_view parameter, std::string_view to) {
  return std::string(to) + std::string(name.substr(parameter.size()));
}

/// All tensors of the parameter in the section, and its coding, under the other name.
void add_name(std::string_view section, std::string_view from, std::string_view to, Recognised& out) {
  std::vector<format::StoredTensor> more;
  for (const format::PlacedTensor& tensor : out.tensors) {
    if (tensor.section != section || parameter_of(tensor.name) != from) continue;
    more.push_back(format::stored_tensor(tensor));
    more.back().name = renamed(tensor.name, from, to);
  }
  for (format::StoredTensor& tensor : more) out.add(std::move(tensor));
  std::vector<QuantisedMoments> codings;
  for (const QuantisedMoments& moments : out.quantised) {
    if (moments.section != section || parameter_of(moments.first) != from) continue;
    QuantisedMoments& coding = codings.emplace_back(moments);
    for (std::string* name : {&coding.first, &coding.second}) *name = renamed(*name, from, to);
    for (std::string& part : coding.parts) part = renamed(part, from, to);
  }
  out.quantised.insert(out.quantised.end(), codings.begin(), codings.end());
}

}  // namespace

void add_tied(Reading& reading, Recognised& out) {
  if (!has_tied_weights(config_of(reading))) return;
  const auto embeddings = find_parameter(out, kEmbeddings);
  const auto head = find_parameter(out, kHeads);
  if (!embeddings || !head) return;
  const format::PlacedTensor* const first = find_weight(out, *embeddings);
  const format::PlacedTensor* const second = find_weight(out, *head);
  if (first != nullptr && second != nullptr && !std::ranges::equal(first->shape, second->shape)) return;
  for (const std::string& section : out.sections) {
    const bool has_embeddings = has_parameter(out, section, *embeddings);
    const bool has_head = has_parameter(out, section, *head);
    if (has_embeddings == has_head) continue;
    const auto& [from, to] = has_head ? std::pair(*head, *embeddings) : std::pair(*embeddings, *head);
    add_name(section, from, to, out);
    reading.warn(fmt::format("section {}: what {} has is had as {} as well (tie_word_embeddings)", shown(section),
                             in_quotes(from), in_quotes(to)));
  }
}

}  // namespace cairn::interop
