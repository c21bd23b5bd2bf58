// Functions on strings: sizes and numbers as words, names and messages on one line, UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace cairn::base {

// Sizes.

/// Bytes of "4096", "5GB" (decimal: KB MB GB TB), "4MiB" (binary: KiB MiB GiB TiB); fractions ("1.5GB"), spaces and
/// any letter case are allowed; a bare K, M, G or T is binary. Throws Error(kUsage) for other strings, negative values
/// and values above 9.2e18.
std::uint64_t parse_size(std::string_view text);

/// "1.90 GiB", "512 B": binary units; from 1 KiB on, three or four significant digits.
std::string format_size(std::uint64_t bytes);

/// A name from a file or a user, made safe for a one-line message. Single quotes, backslashes and everything that a
/// terminal would obey or not show become \xNN (7-bit and 8-bit control characters, marks that change the direction of
/// writing, bytes that are not UTF-8). Names longer than `limit` bytes are cut and end in "...".
std::string printable(std::string_view text, std::size_t limit = 200);
/// As above, without a copy if the string is already printable; otherwise `room` holds the result.
std::string_view printable(std::string_view text, std::string& room);
inline constexpr std::size_t kForeignTextBytes = 500;  ///< a printable() limit: exceptions that are not Cairn's

/// The string with ASCII letters in lower case.
std::string lower(std::string text);

// Numbers as words.

/// "134,515,008".
inline std::string group_digits(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

/// "1 file", "2,048 files"; `many` is the plural if an added s is not enough: "1 tensor is", "2 tensors are".
inline std::string counted(std::uint64_t number, std::string_view one, std::string_view many = {}) {
  std::string text = group_digits(number) + " ";
  if (number == 1 || many.empty()) {
    text += one;
    if (number != 1) text += 's';
  } else {
    text += many;
  }
  return text;
}

// Lists as strings. {fmt}'s header for lists takes many seconds to compile in each unit.

/// "2, 3, 4".
template <class Range>
std::string joined(const Range& range, std::string_view separator = ", ") {
  std::string out;
  bool is_first = true;
  for (const auto& item : range) {
    if (!is_first) out += separator;
    is_first = false;
    if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(item)>>) {
      out += std::to_string(item);
    } else {
      out += item;
    }
  }
  return out;
}

// Beginnings of error messages: a path or a place in a file, on one line.

/// As printable(), but keeps quotes and backslashes, for strings that are already part of a message, such as
/// "x.json: tensor 'a'".
std::string one_line(std::string_view text, std::size_t limit = 1000);

/// `json` with \uNNNN for the non-ASCII characters that a terminal would obey or not show.
std::string visible_json(std::string json);

/// Throws Error(kFormat): "<where>: <what>".
[[noreturn]] void fail_format(std::string_view where, const std::string& what);

// Strict UTF-8: checked for every JSON document and every header before it is parsed.
//
// RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. The JSON library checks only strings, but the
// whole of a safetensors header must be UTF-8.

/// Byte position of the first ill-formed sequence; npos if the whole string is well-formed.
std::size_t find_invalid_utf8(std::string_view text);

inline bool is_utf8(std::string_view text) { return find_invalid_utf8(text) == std::string_view::npos; }

}  // namespace cairn::base
