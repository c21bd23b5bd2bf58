// Digits and numbers in names and strings from outside: ASCII only, whatever the locale.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace cairn::base {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Whether all characters are digits; false for an empty string.
constexpr bool is_all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

constexpr std::size_t leading_digits(std::string_view text) {
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_digit) - text.begin());
}

constexpr std::size_t trailing_digits(std::string_view text) {
  return static_cast<std::size_t>(std::find_if_not(text.rbegin(), text.rend(), is_digit) - text.rbegin());
}

/// "layers.#.weight" for "layers.10.weight": equal for names that differ in numbers only.
inline std::string without_numbers(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (!is_digit(c)) {
      out += c;
    } else if (!out.ends_with('#')) {
      out += '#';
    }
  }
  return out;
}

/// The number of decimal digits.
constexpr std::uint64_t digits_of(std::uint64_t number) {
  std::uint64_t digits = 1;
  for (; number >= 10; number /= 10) ++digits;
  return digits;
}

/// The whole string as a number; nothing if it is not a number or does not fit. `base`: for integers, if not 10.
template <class Number, class... Base>
std::optional<Number> number_in(std::string_view text, Base... base) {
  Number number{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number, base...);
  return status == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace cairn::base
