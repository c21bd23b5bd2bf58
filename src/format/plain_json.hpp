// Reads the JSON that programs write into headers and indexes token by token, many times faster than a general reader.
//
// PlainJson accepts only a part of JSON: names without escapes, and unsigned integers as the only numbers. For other
// text and errors, its functions return false without a reason; the caller then uses the general reader, which reports.
// Accepted text must mean the same to the general reader. Requires UTF-8.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace cairn::format {

class PlainJson {
 public:
  explicit PlainJson(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  /// Consumes the character, and blanks before it; false if a different character follows.
  bool take(char c) {
    skip_blanks();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }

  /// Consumes a string without escapes.
  bool string(std::string_view& value) {
    if (!take('"')) return false;
    const char* const begin = at_;
    skip_plain();
    if (at_ == end_ || *at_ != '"') return false;
    value = {begin, static_cast<std::size_t>(at_ - begin)};
    ++at_;
    return true;
  }

  /// Consumes a string with any escapes except \u.
  bool escaped_string(std::string& value) {
    if (!take('"')) return false;
    value.clear();
    for (;;) {
      const char* const begin = at_;
      skip_plain();
      value.append(begin, at_);
      if (at_ == end_) return false;
      if (*at_ == '"') break;
      if (*at_ != '\\' || end_ - at_ < 2) return false;
      constexpr std::string_view kEscapes = "\"\\/bfnrt";
      constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
      const std::size_t which = kEscapes.find(at_[1]);
      if (which == std::string_view::npos) return false;
      value += kMeanings[which];
      at_ += 2;
    }
    ++at_;
    return true;
  }

  /// Consumes an unsigned integer of at most 19 digits.
  bool number(std::uint64_t& value) {
    skip_blanks();
    const char* const begin = at_;
    value = 0;
    while (at_ != end_ && *at_ >= '0' && *at_ <= '9') value = value * 10 + static_cast<std::uint64_t>(*at_++ - '0');
    const auto digits = at_ - begin;
    if (digits == 0 || digits > 19 || (digits > 1 && *begin == '0')) return false;
    return at_ == end_ || (*at_ != '.' && *at_ != 'e' && *at_ != 'E');
  }

  /// Skips a value: recognises only strings, brackets and commas, and checks nothing else.
  bool skip_value() {
    std::size_t depth = 0;
    for (; at_ != end_; ++at_) {
      if (*at_ == '"') {
        if (!skip_string()) return false;
      } else if (*at_ == '{' || *at_ == '[') {
        ++depth;
      } else if (*at_ == '}' || *at_ == ']' || *at_ == ',') {
        if (depth == 0) return true;
        if (*at_ != ',') --depth;
      }
    }
    return false;
  }

  /// Whether only blanks are left.
  bool done() {
    skip_blanks();
    return at_ == end_;
  }

  [[nodiscard]] const char* place() const { return at_; }

 private:
  void skip_blanks() {
    while (at_ != end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\r' || *at_ == '\t')) ++at_;
  }

  /// Skips to the next quote, backslash or control character: eight bytes at a time, then one by one.
  void skip_plain() {
    constexpr std::uint64_t kOnes = 0x0101010101010101ULL;
    constexpr std::uint64_t kHighs = 0x8080808080808080ULL;
    for (std::uint64_t eight = 0; end_ - at_ >= 8; at_ += 8) {
      std::memcpy(&eight, at_, sizeof eight);
      // A byte matches if x - c borrows (x < c) and its own high bit is not set.
      const std::uint64_t quotes = eight ^ (kOnes * '"');
      const std::uint64_t slashes = eight ^ (kOnes * '\\');
      const std::uint64_t found = (eight - kOnes * 0x20) | (quotes - kOnes) | (slashes - kOnes);
      if ((found & ~eight & kHighs) != 0) break;
    }
    while (at_ != end_ && *at_ != '"' && *at_ != '\\' && static_cast<unsigned char>(*at_) >= 0x20) ++at_;
  }

  /// Skips from the opening quote to the closing one.
  bool skip_string() {
    for (++at_; at_ != end_ && *at_ != '"'; ++at_) {
      if (*at_ == '\\' && ++at_ == end_) return false;
    }
    return at_ != end_;
  }

  const char* at_;
  const char* end_;
};

}  // namespace cairn::format
