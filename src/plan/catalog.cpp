#include "plan/catalog.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::plan {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The run of digits that begins at `at`, without leading zeros; moves `at` behind it.
std::string_view take_number(std::string_view text, std::size_t& at) {
  while (at < text.size() && text[at] == '0') ++at;
  const std::size_t begin = at;
  while (at < text.size() && is_digit(text[at])) ++at;
  return text.substr(begin, at - begin);
}

std::strong_ordering compare_bytes(std::string_view a, std::string_view b) { return a.compare(b) <=> 0; }

constexpr std::array<std::string_view, 4> kKnownSections = {"model", "optimizer", "master_weights", "adapter"};

}  // namespace

std::strong_ordering natural_order(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view x = take_number(a, i);
      const std::string_view y = take_number(b, j);
      if (x.size() != y.size()) return x.size() <=> y.size();
      if (const auto order = compare_bytes(x, y); order != 0) return order;
      continue;
    }
    if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) <=> static_cast<unsigned char>(b[j]);
    ++i;
    ++j;
  }
  if (i < a.size()) return std::strong_ordering::greater;
  if (j < b.size()) return std::strong_ordering::less;
  return compare_bytes(a, b);  // equal but for leading zeros
}

std::strong_ordering section_order(std::string_view a, std::string_view b) {
  const auto place = [](std::string_view s) { return std::find(kKnownSections.begin(), kKnownSections.end(), s); };
  if (const auto order = place(a) - place(b); order != 0) return order <=> 0;
  return compare_bytes(a, b);
}

bool in_catalog_order(std::string_view section_a, std::string_view name_a, std::string_view section_b,
                      std::string_view name_b) {
  if (section_a != section_b) return section_order(section_a, section_b) < 0;
  return natural_order(name_a, name_b) < 0;
}

Catalog make_catalog(std::vector<CatalogTensor> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const CatalogTensor& a, const CatalogTensor& b) {
    return in_catalog_order(a.section, a.name, b.section, b.name);
  });
  const auto twice = std::adjacent_find(
      tensors.begin(), tensors.end(),
      [](const CatalogTensor& a, const CatalogTensor& b) { return a.section == b.section && a.name == b.name; });
  if (twice != tensors.end()) {
    throw Error(ErrorKind::kState,
                fmt::format("tensor '{}' is listed twice in section {}; names must be unique in a section",
                            base::printable(twice->name), base::printable(twice->section)));
  }
  return {std::move(tensors)};
}

}  // namespace cairn::plan
