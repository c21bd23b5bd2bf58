#include "base/units.hpp"

#include <fmt/core.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

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

std::string printable(std::string_view text, std::size_t limit) {
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

}  // namespace cairn::base
