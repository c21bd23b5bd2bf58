#include "interop/file_numbers.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "interop/file_names.hpp"

namespace cairn::interop {

NumberRange expected_numbers(std::uint64_t count, const std::set<std::uint64_t>& there) {
  if (!there.contains(0)) return {1, count};
  return {0, there.contains(count) || count == 0 ? count : count - 1};
}

std::string name_of_number(std::uint64_t number, std::span<const std::string> files) {
  std::size_t digits = parse_data_name(files.front()).number_digits;
  for (const std::string& file : files) digits = std::min(digits, parse_data_name(file).number_digits);
  return with_number(files.front(), number, digits);
}

std::uint64_t first_missing_number(const NumberRange& range, const std::set<std::uint64_t>& there) {
  std::uint64_t next = range.first;
  for (const std::uint64_t number : there) {
    if (number != next) break;
    ++next;
  }
  return next;
}

std::string other_missing_numbers(std::uint64_t from, const NumberRange& range, const std::set<std::uint64_t>& there) {
  constexpr std::size_t kShown = 32;
  const std::uint64_t before = static_cast<std::uint64_t>(std::distance(there.begin(), there.lower_bound(from)));
  const std::uint64_t missing = range.last - from - (there.size() - before);  // after `from`, which is missing itself
  if (missing == 0) return "";
  std::string text = "; so are numbers";
  std::uint64_t named = 0;
  for (std::uint64_t number = from + 1; named < std::min<std::uint64_t>(missing, kShown); ++number) {
    if (there.contains(number)) continue;
    text += fmt::format("{} {}", named++ == 0 ? "" : ",", number);
  }
  if (missing > named) text += fmt::format(" and {} more", missing - named);
  return text;
}

}  // namespace cairn::interop
