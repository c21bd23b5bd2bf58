// Texts: sizes and numbers in words, names and messages on one line, UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace cairn::base {

// Sizes as people write and read them.

/// Bytes of "4096", "5GB" (decimal: KB MB GB TB), "4MiB" (binary: KiB MiB GiB TiB); fractions ("1.5GB"), spaces and any
/// letter case are allowed; a bare K, M, G or T is binary. Throws Error(kUsage) for anything else, for a negative value
/// and for one above 2^63.
std::uint64_t parse_size(std::string_view text);

/// "1.90 GiB", "512 B": three significant places, binary units.
std::string format_size(std::uint64_t bytes);

/// A name from a file or a user, made safe for a one-line message: as bytes \xNN stand quotes, backslash, and what a terminal
/// would obey or not show (control characters of seven and eight bits, marks that turn the direction of writing, what is
/// not UTF-8). What is longer than `limit` bytes is cut with "...".
std::string printable(std::string_view text, std::size_t limit = 200);
/// The same without a copy of what is printable as it is: `room` is for other texts, which the result then leads to.
std::string_view printable(std::string_view text, std::string& room);

/// Letters of ASCII in small.
std::string lower(std::string text);

// Numbers of things in words.

/// "134,515,008".
inline std::string group_digits(std::uint64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

/// "1 file", "2,048 files"; `many` where an s is not enough: "1 tensor is", "2 tensors are".
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

// Numbers or texts one after another. What {fmt} has for it is in a header that costs each unit many seconds to
// compile.

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

// Where an error message begins: the path or the place in a file, on one line.

/// The same without quotes and backslash, so that a place that is already part of a message ("x.json: tensor 'a'") keeps
/// its form.
std::string one_line(std::string_view text, std::size_t limit = 1000);

/// JSON that says the same, with \uNNNN for what a terminal would obey or not show.
std::string visible_json(std::string json);

/// Throws Error(kFormat): "<where>: <what>".
[[noreturn]] void fail_format(std::string_view where, const std::string& what);

// Strict UTF-8: what every text in Cairn's files must be before anything else looks at it.
//
// RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. The JSON library checks strings only, while a
// safetensors header must be UTF-8 as a whole, and that rule has an error kind of its own.

/// Byte position of the first ill-formed sequence, or npos when all of `text` is well-formed UTF-8.
std::size_t find_invalid_utf8(std::string_view text);

inline bool is_utf8(std::string_view text) { return find_invalid_utf8(text) == std::string_view::npos; }

}  // namespace cairn::base
