#include "base/text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>

#include "cairn/error.hpp"

namespace cairn::base {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr std::array<Unit, 14> kUnits = {{
    {"", 1.0},
    {"B", 1.0},
    {"K", 1024.0},
    {"M", 1048576.0},
    {"G", 1073741824.0},
    {"T", 1099511627776.0},
    {"KB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
    {"KIB", 1024.0},
    {"MIB", 1048576.0},
    {"GIB", 1073741824.0},
    {"TIB", 1099511627776.0},
}};

std::string upper_without_blanks(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ' || c == '\t') continue;
    out.push_back(static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  }
  return out;
}

// UTF-8 as in table 3-7 of the Unicode standard. Headers are nearly all ASCII: eight ASCII bytes are skipped at once.

struct Sequence {
  std::size_t length;        // 0: the byte cannot lead a sequence
  unsigned char second_low;  // range of the second byte; later bytes are 80..BF
  unsigned char second_high;
};

Sequence sequence_of(unsigned char lead) {
  if (lead < 0x80) return {1, 0, 0};
  if (lead < 0xC2) return {0, 0, 0};
  if (lead < 0xE0) return {2, 0x80, 0xBF};
  if (lead == 0xE0) return {3, 0xA0, 0xBF};
  if (lead == 0xED) return {3, 0x80, 0x9F};
  if (lead < 0xF0) return {3, 0x80, 0xBF};
  if (lead == 0xF0) return {4, 0x90, 0xBF};
  if (lead < 0xF4) return {4, 0x80, 0xBF};
  if (lead == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

bool well_formed(std::string_view text, std::size_t at, Sequence sequence) {
  if (sequence.length == 0 || sequence.length > text.size() - at) return false;
  for (std::size_t i = 1; i < sequence.length; ++i) {
    const auto byte = static_cast<unsigned char>(text[at + i]);
    const unsigned char low = i == 1 ? sequence.second_low : 0x80;
    const unsigned char high = i == 1 ? sequence.second_high : 0xBF;
    if (byte < low || byte > high) return false;
  }
  return true;
}

// Characters that a terminal does not show as they are.

struct CodeRange {
  std::uint32_t first;
  std::uint32_t last;
};

/// 8-bit controls, which terminals obey; characters that change the direction of writing, break lines or are invisible.
constexpr std::array<CodeRange, 12> kUnseen = {{{0x80, 0x9f},
                                                {0xad, 0xad},
                                                {0x61c, 0x61c},
                                                {0x180e, 0x180e},
                                                {0x200b, 0x200f},
                                                {0x2028, 0x202e},
                                                {0x2060, 0x206f},
                                                {0xfeff, 0xfeff},
                                                {0xfff9, 0xfffb},
                                                {0x1bca0, 0x1bca3},
                                                {0x1d173, 0x1d17a},
                                                {0xe0000, 0xe0fff}}};

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

std::uint32_t code_of(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  std::uint32_t code = character.size() == 1 ? lead : lead & (0x7FU >> character.size());
  for (const char c : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3FU);
  return code;
}

/// The character at `at`; empty if it is ill-formed.
std::string_view character_at(std::string_view text, std::size_t at) {
  const Sequence sequence = sequence_of(static_cast<unsigned char>(text[at]));
  return well_formed(text, at, sequence) ? text.substr(at, sequence.length) : std::string_view();
}

bool is_unseen(std::string_view character) {
  if (character.size() == 1) return is_control(character[0]);
  const std::uint32_t code = code_of(character);
  return std::ranges::any_of(kUnseen, [&](const CodeRange& r) { return code >= r.first && code <= r.last; });
}

bool is_ascii(std::string_view text) {
  bool has_other = false;  // checked once after the loop: the compiler can vectorise a loop without an exit
  for (const char c : text) has_other |= static_cast<unsigned char>(c) >= 0x80;
  return !has_other;
}

/// Up to `limit` bytes of the string, in whole characters, escaped; `escapes` selects more ASCII characters to escape.
template <class Escapes>
std::string escaped(std::string_view text, std::size_t limit, const Escapes& escapes) {
  std::string out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::string_view character = character_at(text, at);
    const std::size_t bytes = std::max<std::size_t>(character.size(), 1);
    if (bytes > limit - at) break;
    if (character.empty() || is_unseen(character) || escapes(character[0])) {
      for (const char c : text.substr(at, bytes)) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += character;
    }
    at += bytes;
  }
  return at < text.size() ? out + "..." : out;
}

constexpr std::size_t kPrintedBytes = 200;

bool is_quoting(char c) { return c == '\'' || c == '\\'; }

bool is_printable(std::string_view text, std::size_t limit) {
  if (text.size() > limit) return false;
  bool is_escaped = false;  // checked once after the loop, as in is_ascii()
  for (const char c : text) {
    is_escaped |= static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f || is_quoting(c);
  }
  return !is_escaped;
}

}  // namespace

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

std::uint64_t parse_size(std::string_view text) {
  const auto fail = [&](const char* why) -> Error {
    return {ErrorKind::kUsage, fmt::format("size '{}' {}; write a number and B, KB, MB, GB, TB, KiB, MiB, GiB or TiB",
                                           printable(text), why)};
  };
  const std::string clean = upper_without_blanks(text);
  double number = 0;
  const auto [end, status] = std::from_chars(clean.data(), clean.data() + clean.size(), number);
  if (status != std::errc() || end == clean.data()) throw fail("has no number");
  const std::string_view suffix(end, static_cast<std::size_t>(clean.data() + clean.size() - end));
  for (const Unit& unit : kUnits) {
    if (unit.name != suffix) continue;
    const double bytes = number * unit.bytes;
    if (!std::isfinite(bytes) || bytes < 0 || bytes > 9.2e18) throw fail("is out of range");
    return static_cast<std::uint64_t>(bytes);
  }
  throw fail("has an unknown unit");
}

std::string format_size(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kNames.size()) {
    value /= 1024.0;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  const int places = value < 10 ? 2 : value < 100 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, places, kNames[unit]);
}

std::string_view printable(std::string_view text, std::string& room) {
  if (is_printable(text, kPrintedBytes)) return text;
  return room = printable(text, kPrintedBytes);
}

std::string printable(std::string_view text, std::size_t limit) {
  if (is_printable(text, limit)) return std::string(text);
  return escaped(text, limit, is_quoting);
}

std::string one_line(std::string_view text, std::size_t limit) {
  return escaped(text, limit, [](char) { return false; });
}

std::string visible_json(std::string json) {
  if (is_ascii(json)) return json;
  std::string out;
  const auto put = [&](std::uint32_t unit) { out += fmt::format("\\u{:04x}", unit); };
  for (std::size_t at = 0; at < json.size();) {
    const std::string_view character = character_at(json, at);
    at += std::max<std::size_t>(character.size(), 1);
    if (character.size() < 2 || !is_unseen(character)) {
      out += character.empty() ? std::string_view(json).substr(at - 1, 1) : character;
      continue;
    }
    const std::uint32_t code = code_of(character);
    if (code >= 0x10000) put(0xd800 + ((code - 0x10000) >> 10));
    put(code >= 0x10000 ? 0xdc00 + ((code - 0x10000) & 0x3ff) : code);
  }
  return out;
}

void fail_format(std::string_view where, const std::string& what) {
  throw Error(ErrorKind::kFormat, fmt::format("{}: {}", one_line(where), what));
}

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t eight = 0;
    if (text.size() - at >= sizeof eight) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080ULL) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const Sequence sequence = sequence_of(static_cast<unsigned char>(text[at]));
    if (!well_formed(text, at, sequence)) return at;
    at += sequence.length;
  }
  return std::string_view::npos;
}

}  // namespace cairn::base
