#include "conversion/choice.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "base/text.hpp"
#include "cairn/error.hpp"
#include "interop/reading.hpp"
#include "shard/name_pattern.hpp"

namespace cairn::conversion {
namespace {

/// A tensor's own name, and for codes and scales the names of the pair's moments and other parts.
struct Names {
  std::string_view section;
  std::vector<std::string_view> names;
};

std::vector<Names> names_of(const codes::View& view, const plan::Catalog& sources) {
  std::vector<Names> all;
  all.reserve(sources.tensors.size());
  for (const plan::CatalogTensor& tensor : sources.tensors) all.push_back({tensor.section, {tensor.name}});
  if (!view.as_stored) return all;
  for (const codes::CodedPair& pair : view.pairs) {
    std::vector<std::string_view> names = {pair.moments->first, pair.moments->second};
    names.insert(names.end(), pair.moments->parts.begin(), pair.moments->parts.end());
    for (const std::uint32_t number : pair.stored) all[number].names = names;
  }
  return all;
}

std::vector<bool> selected_by(const std::vector<Names>& all, const Selection& select) {
  const shard::Selector selector(select);
  std::vector<bool> selected(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    selected[i] = std::ranges::any_of(all[i].names,
                                      [&](std::string_view name) { return selector.selects(all[i].section, name); });
  }
  return selected;
}

[[noreturn]] void refuse(std::string_view place, std::string_view what, const std::string& pattern,
                         const std::set<std::string>& there) {
  const std::vector<std::string> names(there.begin(), there.end());
  throw Error(ErrorKind::kNotFound, fmt::format("'{}' has no {} like '{}'; there {} {}", base::printable(place), what,
                                                base::printable(pattern), names.size() == 1 ? "is" : "are",
                                                names.empty() ? "none" : interop::list_some(names)));
}

/// Throws for the first pattern that matches nothing. Names count only in selected sections.
void require_matches(const std::vector<Names>& all, const Selection& select, std::string_view place) {
  const auto matches = [&](const Selection& one) {
    const std::vector<bool> selected = selected_by(all, one);
    return std::ranges::find(selected, true) != selected.end();
  };
  for (const std::string& section : select.sections) {
    if (matches({{section}, {}})) continue;
    std::set<std::string> there;
    for (const Names& tensor : all) there.emplace(tensor.section);
    refuse(place, "section", section, there);
  }
  for (const std::string& name : select.names) {
    if (matches({select.sections, {name}})) continue;
    std::set<std::string> there;
    const std::vector<bool> in_sections = selected_by(all, {select.sections, {}});
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (in_sections[i]) there.emplace(all[i].names.front());
    }
    refuse(place,
           select.sections.empty()
               ? "tensor"
               : fmt::format("tensor of section {}", base::printable(base::joined(select.sections, " or "))),
           name, there);
  }
}

}  // namespace

std::vector<std::uint32_t> chosen(const codes::View& view, const plan::Catalog& sources, const Selection& select,
                                  std::string_view place) {
  std::vector<std::uint32_t> numbers;
  if (!is_limited(select)) {
    numbers.resize(sources.tensors.size());
    std::iota(numbers.begin(), numbers.end(), 0U);
    return numbers;
  }
  const std::vector<Names> all = names_of(view, sources);
  require_matches(all, select, place);
  const std::vector<bool> selected = selected_by(all, select);
  for (std::uint32_t i = 0; i < selected.size(); ++i) {
    if (selected[i]) numbers.push_back(i);
  }
  return numbers;
}

plan::Catalog part_of(const plan::Catalog& sources, const std::vector<std::uint32_t>& numbers) {
  plan::Catalog part;
  part.tensors.reserve(numbers.size());
  for (const std::uint32_t number : numbers) part.tensors.push_back(sources.tensors[number]);
  return part;
}

void use_all_sources(plan::TensorMap& map, const std::vector<std::uint32_t>& numbers) {
  for (std::uint32_t i = 0; i < map.sources.size(); ++i) {
    const auto pieces = map.pieces.find(i);
    if (pieces == map.pieces.end()) {
      map.sources[i] = numbers.at(map.sources[i]);
    } else {
      for (plan::MapPiece& piece : pieces->second) piece.source = numbers.at(piece.source);
    }
  }
}

}  // namespace cairn::conversion
