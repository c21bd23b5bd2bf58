#include "pickle/pickle_text.hpp"

#include <algorithm>

#include "base/digits.hpp"
#include "base/utf8.hpp"

namespace cairn::pickle {
namespace {

constexpr std::size_t kMostDigits = 1200;
constexpr std::size_t kDigitsOfAStep = 9;
constexpr std::size_t kLargestMagnitude = 8;

std::uint8_t unsigned_of(char c) { return static_cast<std::uint8_t>(c); }

/// The value of `count` hexadecimal digits at `at`.
std::optional<std::uint32_t> hexadecimal_at(std::string_view text, std::size_t at, std::size_t count) {
  if (at > text.size() || text.size() - at < count) return std::nullopt;
  return base::number_in<std::uint32_t>(text.substr(at, count), 16);
}

/// Appends a character in UTF-8. False for a code that is a surrogate or beyond the last code point.
bool put_utf8(std::uint32_t code, std::string& out) {
  if (code >= 0x110000 || (code >= 0xd800 && code < 0xe000)) return false;
  base::append_utf8(out, code);
  return true;
}

/// The meaning of a single character after a backslash.
std::optional<char> simple_escape(char c) {
  switch (c) {
    case '\\':
    case '\'':
    case '"': return c;
    case 'a': return '\a';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'v': return '\v';
    default: return std::nullopt;
  }
}

bool is_octal(char c) { return c >= '0' && c <= '7'; }

}  // namespace

PickleInteger PickleInteger::from_bytes(std::string_view bytes) {
  PickleInteger out;
  out.magnitude_ = bytes;
  out.is_negative_ = !bytes.empty() && (unsigned_of(bytes.back()) & 0x80) != 0;
  if (out.is_negative_) {
    unsigned carry = 1;
    for (char& c : out.magnitude_) {
      const unsigned sum = (unsigned_of(c) ^ 0xffU) + carry;
      c = static_cast<char>(sum & 0xff);
      carry = sum >> 8;
    }
  }
  while (!out.magnitude_.empty() && out.magnitude_.back() == 0) out.magnitude_.pop_back();
  return out;
}

std::optional<PickleInteger> PickleInteger::from_decimal(std::string_view digits) {
  PickleInteger out;
  out.is_negative_ = digits.starts_with('-');
  if (out.is_negative_) digits.remove_prefix(1);
  if (digits.size() > kMostDigits || !base::is_all_digits(digits)) return std::nullopt;
  // Nine digits at a time, because each step passes over the whole number.
  for (; !digits.empty(); digits.remove_prefix(std::min(kDigitsOfAStep, digits.size()))) {
    std::uint64_t carry = 0;
    std::uint64_t factor = 1;
    for (const char digit : digits.substr(0, kDigitsOfAStep)) {
      carry = carry * 10 + static_cast<std::uint64_t>(digit - '0');
      factor *= 10;
    }
    for (char& c : out.magnitude_) {
      const std::uint64_t sum = unsigned_of(c) * factor + carry;
      c = static_cast<char>(sum & 0xff);
      carry = sum >> 8;
    }
    for (; carry != 0; carry >>= 8) out.magnitude_ += static_cast<char>(carry & 0xff);
  }
  return out;
}

std::optional<std::int64_t> PickleInteger::small() const {
  if (magnitude_.size() > kLargestMagnitude) return std::nullopt;
  std::uint64_t value = 0;
  for (std::size_t i = magnitude_.size(); i-- > 0;) value = value << 8 | unsigned_of(magnitude_[i]);
  const std::uint64_t limit = (std::uint64_t{1} << 63) - (is_negative_ ? 0 : 1);
  if (value > limit) return std::nullopt;
  return static_cast<std::int64_t>(is_negative_ ? -value : value);
}

std::string PickleInteger::hexadecimal() const {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out;
  for (std::size_t i = magnitude_.size(); i-- > 0;) {
    const std::uint8_t byte = unsigned_of(magnitude_[i]);
    if (!out.empty() || byte >= 16) out += kHex[byte >> 4];
    out += kHex[byte & 15];
  }
  return (is_negative_ ? "-0x" : "0x") + (out.empty() ? std::string("0") : out);
}

bool unescape_quoted(std::string_view line, std::string& out) {
  if (line.size() < 2 || line.front() != line.back() || (line.front() != '\'' && line.front() != '"')) return false;
  const std::string_view text = line.substr(1, line.size() - 2);
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    if (++i == text.size()) return false;
    if (const auto simple = simple_escape(text[i])) {
      out += *simple;
    } else if (text[i] == 'x') {
      const auto value = hexadecimal_at(text, i + 1, 2);
      if (!value) return false;
      out += static_cast<char>(*value);
      i += 2;
    } else if (is_octal(text[i])) {
      unsigned value = 0;
      std::size_t digits = 0;
      for (; digits < 3 && i + digits < text.size() && is_octal(text[i + digits]); ++digits) {
        value = value * 8 + static_cast<unsigned>(text[i + digits] - '0');
      }
      out += static_cast<char>(value & 0xff);
      i += digits - 1;
    } else {
      return false;
    }
  }
  return true;
}

bool unescape_unicode(std::string_view line, std::string& out) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool is_long = i + 1 < line.size() && line[i] == '\\' && line[i + 1] == 'U';
    const bool is_short = i + 1 < line.size() && line[i] == '\\' && line[i + 1] == 'u';
    if (!is_long && !is_short) {
      put_utf8(unsigned_of(line[i]), out);
      continue;
    }
    const std::size_t digits = is_long ? 8 : 4;
    const auto code = hexadecimal_at(line, i + 2, digits);
    if (!code || !put_utf8(*code, out)) return false;
    i += 1 + digits;
  }
  return true;
}

}  // namespace cairn::pickle
