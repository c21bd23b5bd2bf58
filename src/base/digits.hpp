// Decimal digits in names from elsewhere: ASCII only, whatever the locale.
#pragma once

#include <algorithm>
#include <string_view>

namespace cairn::base {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// False for an empty text.
constexpr bool is_all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

}  // namespace cairn::base
