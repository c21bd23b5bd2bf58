// Json::parse(): a scanner of the text, and a builder that makes the tree and checks depth, keys and memory while the
// document is read. Places in messages are numbers of bytes: those read when the fault was seen.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/digits.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "base/utf8.hpp"
#include "cairn/error.hpp"

namespace cairn::base {

/// Builds a Json from the scanner's events.
class JsonBuilder {
 public:
  JsonBuilder(std::string_view path, const JsonOptions& options) : path_(path), options_(options) {}

  Json take() { return std::move(root_); }

  void put(Json value) {
    if (!is_skipped()) place(std::move(value));
    is_wanted_ = true;
  }
  // Pointers in open_ stay valid: a parent grows only after its open child is closed.
  void open(Json value) {
    if (open_.size() + skipped_ >= kMaxJsonDepth) {
      fail_format(path_, fmt::format("JSON is nested more than {} levels deep", kMaxJsonDepth));
    }
    if (is_skipped()) {
      ++skipped_;
      return;
    }
    open_.push_back(&place(std::move(value)));
  }
  void key(std::string value) {
    if (skipped_ > 0) return;
    key_ = std::move(value);
    is_wanted_ = open_.size() > 1 || options_.members.empty() ||
                 std::ranges::find(options_.members, std::string_view(key_)) != options_.members.end();
  }
  void close() {
    if (skipped_ > 0) {
      is_wanted_ = --skipped_ == 0;
      return;
    }
    if (open_.back()->is_object()) settle_keys();
    open_.pop_back();
  }

 private:
  /// Counts memory before the value is stored.
  void charge(const Json& value) {
    std::uint64_t bytes = sizeof(Json::Member) + key_.size();
    if (value.is_string()) bytes += value.text().size();
    if (bytes > options_.memory_bytes - used_bytes_) {
      fail_format(path_, fmt::format("its values take more than {} of memory", format_size(options_.memory_bytes)));
    }
    used_bytes_ += bytes;
  }
  Json& place(Json value) {
    charge(value);
    if (open_.empty()) return root_ = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_array()) return std::get<Json::Array>(parent.value_).emplace_back(std::move(value));
    return std::get<Json::Object>(parent.value_).emplace_back(Json::Member{std::move(key_), std::move(value)}).value;
  }
  /// Whether the current value is an unwanted member, or inside one.
  [[nodiscard]] bool is_skipped() const { return skipped_ > 0 || !is_wanted_; }

  /// Looks for repeated keys in the object that ends.
  void settle_keys() {
    auto& members = std::get<Json::Object>(open_.back()->value_);
    std::vector<std::string_view> keys;
    keys.reserve(members.size());
    for (const Json::Member& member : members) keys.push_back(member.key);
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    if (twice == keys.end()) return;
    if (options_.dialect == JsonDialect::kStrict) {
      fail_format(path_, fmt::format("the key '{}' appears twice in one object", printable(*twice)));
    }
    keep_last(members);
  }
  /// Keeps the last value of each key, in the place of its first, as a Python dict does.
  static void keep_last(Json::Object& members) {
    std::map<std::string, std::size_t> places;
    Json::Object kept;
    for (Json::Member& member : members) {
      const auto [at, is_new] = places.emplace(member.key, kept.size());
      if (is_new) {
        kept.push_back(std::move(member));
      } else {
        kept[at->second].value = std::move(member.value);
      }
    }
    members = std::move(kept);
  }

  std::string_view path_;
  JsonOptions options_;
  std::uint64_t used_bytes_ = 0;
  std::size_t skipped_ = 0;  ///< open values that are not stored
  bool is_wanted_ = true;    ///< whether the last key names a wanted member
  Json root_;
  std::vector<Json*> open_;
  std::string key_;
};

namespace {

void check_text(std::string_view text, std::string_view path) {
  const std::size_t bad = find_invalid_utf8(text);
  if (bad != std::string_view::npos) fail_format(path, fmt::format("byte {} is not UTF-8", bad));
  if (text.starts_with("\xEF\xBB\xBF")) fail_format(path, "begins with a byte order mark; JSON must not");
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) fail_format(path, fmt::format("not JSON: NUL at byte {}", nul));
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_leading_surrogate(std::uint32_t code) { return code >= 0xD800 && code < 0xDC00; }
bool is_trailing_surrogate(std::uint32_t code) { return code >= 0xDC00 && code < 0xE000; }

/// The limit for a number that no double holds: an infinity if it is large, a zero if it is small.
double limit_of(std::string_view number) {
  constexpr std::int64_t kMostExponent = std::int64_t{1} << 48;  // far above the places of any text
  const std::size_t mark = std::min(number.find_first_of("eE"), number.size());
  const std::string_view digits = number.substr(0, mark);
  const std::size_t point = std::min(digits.find('.'), digits.size());
  const std::size_t first = digits.find_first_of("123456789");
  std::int64_t exponent = 0;
  for (const char c : number.substr(mark)) {
    if (is_digit(c)) exponent = std::min(exponent * 10 + (c - '0'), kMostExponent);
  }
  if (number.substr(mark).find('-') != std::string_view::npos) exponent = -exponent;
  const std::int64_t places = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first);
  const bool is_large = first != std::string_view::npos && places + exponent > 0;
  const double limit = is_large ? std::numeric_limits<double>::infinity() : 0.0;
  return number.starts_with('-') ? -limit : limit;
}

double real_of(std::string_view number) {
  double value = 0;
  const auto status = std::from_chars(number.data(), number.data() + number.size(), value).ec;
  return status == std::errc() ? value : limit_of(number);
}

template <class Number>
std::optional<Json> whole_of(std::string_view number) {
  Number value = 0;
  const auto status = std::from_chars(number.data(), number.data() + number.size(), value).ec;
  if (status != std::errc()) return std::nullopt;
  return Json(value);
}

/// Reads a document. Values nest at most kMaxJsonDepth levels, so the recursion is shallow.
class JsonScanner {
 public:
  JsonScanner(std::string_view text, std::string_view path, const JsonOptions& options)
      : text_(text), path_(path), is_python_(options.dialect == JsonDialect::kPython), builder_(path, options) {}

  Json read() {
    read_value();
    skip_blanks();
    if (at_ != text_.size()) unexpected();
    return builder_.take();
  }

 private:
  /// Throws the error; `bytes`: how many were read.
  [[noreturn]] void fail(std::size_t bytes) const {
    fail_format(path_, fmt::format("not valid JSON at byte {}; the file is damaged or cut off", bytes));
  }
  /// Throws for the token here, after reading all of it.
  [[noreturn]] void unexpected() {
    const char c = peek();
    if (c == '"') {
      (void)read_string();
    } else if (c == '-' || is_digit(c)) {
      (void)read_number();
    } else if (const char* const word = word_at(c)) {
      take_word(word);
    } else {
      ++at_;
    }
    fail(at_);
  }

  /// The next byte; NUL, which the text does not have, at its end.
  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_blanks() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
  }
  bool take(char c) {
    skip_blanks();
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  void read_value() {
    skip_blanks();
    const char c = peek();
    if (c == '{') {
      read_object();
    } else if (c == '[') {
      read_array();
    } else if (c == '"') {
      builder_.put(read_string());
    } else if (const char* const word = word_at(c)) {
      take_word(word);
      builder_.put(meaning_of(word));
    } else if (c == '-' || is_digit(c)) {
      builder_.put(read_number());
    } else {
      unexpected();
    }
  }

  void read_object() {
    builder_.open(Json::object());
    read_items('}', [&] {
      skip_blanks();
      if (peek() != '"') unexpected();
      builder_.key(read_string());
      if (!take(':')) unexpected();
      read_value();
    });
  }

  void read_array() {
    builder_.open(Json::array());
    read_items(']', [&] { read_value(); });
  }

  /// Reads from the opening bracket to the closing one, with commas between the items.
  template <class ReadItem>
  void read_items(char end, const ReadItem& read_item) {
    ++at_;
    if (!take(end)) {
      do {
        read_item();
      } while (take(','));
      if (!take(end)) unexpected();
    }
    builder_.close();
  }

  // Words. The first character decides which one it must be.

  [[nodiscard]] const char* word_at(char first) const {
    if (first == 't') return "true";
    if (first == 'f') return "false";
    if (first == 'n') return "null";
    if (!is_python_) return nullptr;
    if (first == 'N') return "NaN";
    if (first == 'I') return "Infinity";
    return text_.substr(at_).starts_with("-I") ? "-Infinity" : nullptr;
  }
  void take_word(std::string_view word) {
    for (const char c : word) {
      if (peek() != c) fail(at_ + 1);
      ++at_;
    }
  }
  static Json meaning_of(std::string_view word) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    switch (word.front()) {
      case 't': return true;
      case 'f': return false;
      case 'N': return std::numeric_limits<double>::quiet_NaN();
      case 'I': return kInfinity;
      case '-': return -kInfinity;
      default: return nullptr;
    }
  }

  // Numbers.

  void take_digits() {
    if (!is_digit(peek())) fail(at_ + 1);
    while (is_digit(peek())) ++at_;
  }

  Json read_number() {
    const std::size_t begin = at_;
    if (peek() == '-') ++at_;
    if (peek() == '0') {
      ++at_;
    } else {
      take_digits();
    }
    bool is_whole = true;
    if (peek() == '.') {
      is_whole = false;
      ++at_;
      take_digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      is_whole = false;
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      take_digits();
    }
    const std::string_view number = text_.substr(begin, at_ - begin);
    if (is_whole) {
      const auto value = number.front() == '-' ? whole_of<std::int64_t>(number) : whole_of<std::uint64_t>(number);
      if (value) return *value;
    }
    const double value = real_of(number);
    if (!is_python_ && std::isinf(value)) {
      fail_format(path_, "not valid JSON: a number is too large");
    }
    return value;
  }

  // Strings.

  std::string read_string() {
    std::string out;
    for (++at_;;) {
      const std::size_t begin = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && !is_control(text_[at_])) ++at_;
      out.append(text_, begin, at_ - begin);
      const char c = peek();
      ++at_;
      if (c == '"') return out;
      if (c != '\\') fail(at_);
      read_escape(out);
    }
  }
  static bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20; }

  void read_escape(std::string& out) {
    constexpr std::string_view kEscapes = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const char c = peek();
    ++at_;
    if (c == 'u') return read_code(out);
    const std::size_t which = kEscapes.find(c);
    if (which == std::string_view::npos) fail(at_);
    out += kMeanings[which];
  }

  void read_code(std::string& out) {
    std::uint32_t code = hexadecimal();
    if (is_leading_surrogate(code) && has_trailing_surrogate()) {
      at_ += 2;
      code = 0x10000 + ((code - 0xD800) << 10) + (hexadecimal() - 0xDC00);
    } else if (!is_python_ && (is_leading_surrogate(code) || is_trailing_surrogate(code))) {
      fail(at_);
    }
    append_utf8(out, code);
  }

  std::uint32_t hexadecimal() {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const char* const digit = text_.data() + at_;
      std::uint32_t value = 0;
      const bool is_read = at_ < text_.size() && std::from_chars(digit, digit + 1, value, 16).ec == std::errc();
      ++at_;
      if (!is_read) fail(at_);
      code = code << 4 | value;
    }
    return code;
  }
  /// Whether "\uDC00" to "\uDFFF" follows.
  [[nodiscard]] bool has_trailing_surrogate() const {
    const std::string_view next = text_.substr(at_, 6);
    if (next.size() < 6 || !next.starts_with("\\u")) return false;
    std::uint32_t code = 0;
    const auto [end, status] = std::from_chars(next.data() + 2, next.data() + 6, code, 16);
    return status == std::errc() && end == next.data() + 6 && is_trailing_surrogate(code);
  }

  std::string_view text_;
  std::string_view path_;
  bool is_python_;
  JsonBuilder builder_;
  std::size_t at_ = 0;
};

}  // namespace

Json Json::parse(std::string_view text, std::string_view path, const JsonOptions& options) {
  check_text(text, path);
  return JsonScanner(text, path, options).read();
}

std::string compact_json(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool is_in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (!is_in_string && is_blank(c)) continue;
    out += c;
    if (c == '"') is_in_string = !is_in_string;
    if (c == '\\') out += text[++at];  // only strings have escapes
  }
  return out;
}

}  // namespace cairn::base
