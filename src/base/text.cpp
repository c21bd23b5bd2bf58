// Texts: sizes as people write them, names and messages on one line, UTF-8.
#include "base/text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
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

}  // namespace

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

namespace {

constexpr std::size_t kPrintedBytes = 200;

bool is_printable(std::string_view text, std::size_t limit) {
  if (text.size() > limit) return false;
  bool is_escaped = false;  // looked at once: a loop without a way out is done many characters at a time
  for (const char c : text) {
    is_escaped |= static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\'' || c == '\\';
  }
  return !is_escaped;
}

}  // namespace

std::string_view printable(std::string_view text, std::string& room) {
  if (is_printable(text, kPrintedBytes)) return text;
  return room = printable(text, kPrintedBytes);
}

std::string printable(std::string_view text, std::size_t limit) {
  if (is_printable(text, limit)) return std::string(text);
  std::string out;
  for (const char c : text.substr(0, limit)) {
    const auto u = static_cast<unsigned char>(c);
    if (u < 0x20 || u == 0x7f || c == '\'' || c == '\\') {
      out += fmt::format("\\x{:02x}", u);
    } else {
      out.push_back(c);
    }
  }
  if (text.size() > limit) out += "...";
  return out;
}

std::string one_line(std::string_view text) {
  constexpr std::size_t kMost = 1000;
  std::string out;
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return text.size() > kMost ? out + "..." : out;
}

void fail_format(std::string_view where, const std::string& what) {
  throw Error(ErrorKind::kFormat, fmt::format("{}: {}", one_line(where), what));
}

// Table 3-7 of the Unicode standard, with a fast path over eight ASCII bytes at a time (headers are nearly all ASCII).

namespace {

struct Sequence {
  std::size_t length;        // 0: not a leading byte
  unsigned char second_low;  // range of the second byte; the later ones are 80..BF
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

}  // namespace

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
