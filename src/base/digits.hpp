// Decimal digits in names from elsewhere: ASCII only, whatever the locale.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cairn::base {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// False for an empty text.
constexpr bool is_all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

constexpr std::size_t leading_digits(std::string_view text) {
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_digit) - text.begin());
}

constexpr std::size_t trailing_digits(std::string_view text) {
  return static_cast<std::size_t>(std::find_if_not(text.rbegin(), text.rend(), is_digit) - text.rbegin());
}

/// Requires digits only, at most 18 of them.
constexpr std::uint64_t number_of_digits(std::string_view digits) {
  std::uint64_t value = 0;
  for (const char c : digits) value = value * 10 + static_cast<std::uint64_t>(c - '0');
  return value;
}

}  // namespace cairn::base
