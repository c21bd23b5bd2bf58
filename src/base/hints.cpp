#include "base/hints.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.hpp"

namespace cairn::base {
namespace {

constexpr std::size_t kMostEdits = 8;

void strip_common_ends(std::string_view& a, std::string_view& b) {
  const auto front = std::ranges::mismatch(a, b).in1 - a.begin();
  a.remove_prefix(static_cast<std::size_t>(front));
  b.remove_prefix(static_cast<std::size_t>(front));
  while (!a.empty() && !b.empty() && a.back() == b.back()) {
    a.remove_suffix(1);
    b.remove_suffix(1);
  }
}

/// Whether `name` is `end` with more in front of a dot.
bool ends_after_dot(std::string_view name, std::string_view end) {
  return !end.empty() && name.size() > end.size() && name.ends_with(end) && name[name.size() - end.size() - 1] == '.';
}

}  // namespace

std::string quoted_names(std::span<const std::string> names, std::size_t most) {
  const std::size_t shown = std::min(names.size(), most);
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) {
    if (i != 0) text += i + 1 == names.size() ? " and " : ", ";
    text += "'" + printable(names[i]) + "'";
  }
  if (names.size() > shown) text += " and " + group_digits(names.size() - shown) + " more";
  return text;
}

/// Levenshtein's distance, in the diagonal band in which it can be `most` or less.
std::size_t edits_between(std::string_view a, std::string_view b, std::size_t most) {
  strip_common_ends(a, b);
  if (a.size() > b.size()) std::swap(a, b);
  if (b.size() - a.size() > most) return most + 1;
  if (a.empty()) return b.size();
  std::vector<std::size_t> row(b.size() + 1);  // of the matrix: edits from the first i bytes of a to the first j of b
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = std::min(j, most + 1);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    const std::size_t first = i > most ? i - most : 1;
    const std::size_t last = std::min(b.size(), i + most);
    std::size_t diagonal = row[first - 1];
    row[first - 1] = first == 1 ? std::min(i, most + 1) : most + 1;
    std::size_t least = row[first - 1];
    for (std::size_t j = first; j <= last; ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({changed, row[j] + 1, row[j - 1] + 1, most + 1});
      least = std::min(least, row[j]);
    }
    if (least > most) return most + 1;
  }
  return row.back();
}

NearestName::NearestName(std::string_view wanted)
    : wanted_(wanted), most_(std::min(kMostEdits, std::max<std::size_t>(1, wanted.size() / 3))) {}

void NearestName::consider(std::string_view name) {
  if (most_ == 0) return;
  const bool has_same_end = ends_after_dot(name, wanted_) || ends_after_dot(wanted_, name);
  const std::size_t edits = has_same_end ? 1 : edits_between(wanted_, name, most_);
  if (edits > most_) return;
  found_ = name;
  most_ = edits == 0 ? 0 : edits - 1;
}

}  // namespace cairn::base
