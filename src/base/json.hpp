// A JSON value, read by the rules of JsonDialect and written in the formats of other programs. In src, only json.cpp
// includes nlohmann's headers, which take ten seconds to compile.
//
// In both dialects a document is UTF-8 without byte order mark or NUL, and nesting is at most kMaxJsonDepth. Objects
// keep the order of their keys. An integer of more than 64 bits becomes a double.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace cairn::base {

inline constexpr int kMaxJsonDepth = 127;

enum class JsonDialect : std::uint8_t {
  /// Cairn's own files. No object has a key twice (two readers would see two documents), numbers fit, text is UTF-8.
  kStrict,
  /// Other programs' files, as Python's json module reads and writes them: NaN, Infinity, -Infinity; a number that is
  /// too large is an infinity; the last of equal keys counts; "\ud800" without its other half is a character, which
  /// text() has as three bytes (ED A0 80 to ED BF BF) that are not UTF-8.
  kPython,
};

struct JsonOptions {
  JsonDialect dialect = JsonDialect::kStrict;
  std::uint64_t memory_bytes = 1ULL << 30;  ///< approximate size of all stored values; a byte of input can need forty
  /// Members to store if the document is an object; empty: all. Other members need no memory, and repeated keys among
  /// them are not detected.
  std::span<const std::string_view> members = {};
};

struct JsonFormat {
  int indent = -1;      ///< spaces per level; below 0: all on one line
  bool sorted = false;  ///< keys sorted by code point
  bool ascii = false;   ///< non-ASCII characters as \uXXXX
  /// Bytes that are not UTF-8 become U+FFFD; NaN and infinities null. Otherwise both throw Error(kUsage).
  bool is_lenient = false;
  JsonDialect dialect = JsonDialect::kStrict;  ///< kPython: NaN, infinities and lone surrogates as Python writes them
};

class Json {
 public:
  struct Member;

  Json();  ///< null
  ~Json();
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;

  // Implicit conversions.
  Json(std::nullptr_t) : Json() {}
  Json(bool value);
  Json(double value);
  Json(std::string value);
  Json(std::string_view value);
  Json(const char* value);
  template <std::unsigned_integral Number>
  requires(!std::same_as<Number, bool>) Json(Number value) : Json(Whole{static_cast<std::uint64_t>(value)}) {}
  template <std::signed_integral Number>
  Json(Number value)
      : Json(value < 0 ? Json(Negative{static_cast<std::int64_t>(value)})
                       : Json(Whole{static_cast<std::uint64_t>(value)})) {}
  template <class Value>
  Json(const std::vector<Value>& values) : Json(array()) {
    for (const Value& value : values) push_back(value);
  }
  template <class Value, class Less>
  Json(const std::map<std::string, Value, Less>& values) : Json(object()) {
    for (const auto& [key, value] : values) append(key, value);
  }
  /// A list of pairs that begin with a string is an object: {{"key", value}, ...}. Every other list is an array.
  Json(std::initializer_list<Json> values);

  static Json array();
  /// The array of make(item) for each item.
  template <class Items, class Make>
  static Json array_of(const Items& items, Make make) {
    Json out = array();
    for (const auto& item : items) out.push_back(make(item));
    return out;
  }
  static Json object();

  /// Parses a document. Throws Error(kFormat) naming `path`, and the place or the repeated key.
  static Json parse(std::string_view text, std::string_view path, const JsonOptions& options = {});
  [[nodiscard]] std::string dump(const JsonFormat& format = {}) const;

  [[nodiscard]] bool is_null() const;
  [[nodiscard]] bool is_boolean() const;
  [[nodiscard]] bool is_number_unsigned() const;
  [[nodiscard]] bool is_number_float() const;
  [[nodiscard]] bool is_string() const;
  [[nodiscard]] bool is_array() const;
  [[nodiscard]] bool is_object() const;
  /// "null", "boolean", "number", "string", "array" or "object".
  [[nodiscard]] const char* type_name() const;

  // Accessors by type: Error(kInternal) if the value has a different type, so check first.
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::uint64_t whole_number() const;
  [[nodiscard]] const std::int64_t* negative_number() const;  ///< nullptr unless the value is a negative integer
  [[nodiscard]] double real_number() const;                   ///< any number, converted
  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] std::span<const Json> elements() const;  ///< elements of an array
  [[nodiscard]] std::span<const Member> items() const;   ///< members of an object

  [[nodiscard]] std::size_t size() const;  ///< number of elements or members; 0 for any other value
  [[nodiscard]] bool empty() const { return size() == 0; }

  /// The value of a key; nullptr if the key is missing, or if this is not an object.
  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] bool contains(std::string_view key) const { return find(key) != nullptr; }
  [[nodiscard]] const Json& at(std::string_view key) const;  ///< Error(kInternal) if the key is missing
  /// The value of a key; a missing key is added with null. If this Json is null, it becomes an object first.
  Json& operator[](std::string_view key);
  /// Adds or replaces members.
  void update(const Json& other);
  /// Removes a member and returns its value; null if the key is missing.
  Json take(std::string_view key);
  /// Appends an element. If this Json is null, it becomes an array first.
  void push_back(Json value);

  /// Objects are equal if they have equal members, in any order; NaN equals NaN.
  friend bool operator==(const Json& a, const Json& b);

 private:
  friend class JsonBuilder;
  struct Whole {
    std::uint64_t value;
  };
  struct Negative {
    std::int64_t value;
  };
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  explicit Json(Whole value);
  explicit Json(Negative value);
  /// Adds a member whose key the object does not have yet.
  void append(const std::string& key, Json value);
  [[noreturn]] void mistaken_for(const char* type) const;

  std::variant<std::monostate, bool, std::uint64_t, std::int64_t, double, std::string, Array, Object> value_;
};

struct Json::Member {
  std::string key;
  Json value;
};

/// The text of a document without the blanks between its values, which stay as they are written. Requires: `text` was
/// parsed without an error.
std::string compact_json(std::string_view text);

/// `text` as a JSON string with its quotes, escaped as `format` specifies.
std::string json_quoted(std::string_view text, const JsonFormat& format);

/// The result of Python's json.dumps(value, indent=2, sort_keys=True) + "\n": keys sorted by code point, indent 2,
/// non-ASCII as \uXXXX, a newline at the end. Throws Error(kUsage) for a string that is not UTF-8.
std::string python_json(const Json& value);

/// A value for a message: one line, cut after `limit` bytes.
std::string shown_json(const Json& value, std::size_t limit);

}  // namespace cairn::base
