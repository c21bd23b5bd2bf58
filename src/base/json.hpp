// A JSON value, read strictly and written as other programs write it. The library behind it is seen by json.cpp alone:
// its headers cost every unit that includes them ten seconds.
//
// Strict: the text is UTF-8 without byte order mark or NUL, no object has a key twice (two readers would see two
// documents), numbers fit, nesting is at most kMaxJsonDepth. Objects keep the order in which their keys came.
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

/// Of a document that somebody else wrote.
struct JsonLimits {
  std::uint64_t memory_bytes = 1ULL << 30;  ///< of all values that are kept, about; a byte of text can become forty
  /// Members of the document that are kept, where it is an object; empty: all. The rest takes no memory, and two of one key
  /// in it are not seen.
  std::span<const std::string_view> members = {};
};

struct JsonFormat {
  int indent = -1;          ///< spaces per level; below 0: all on one line
  bool sorted = false;      ///< keys by code point
  bool ascii = false;       ///< other characters as \uXXXX
  bool is_lenient = false;  ///< replace what is not UTF-8 by U+FFFD; else it is Error(kUsage)
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

  // Values that stand for themselves.
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
  /// {{"key", value}, ...} is an object: a list of pairs whose first is a string. Every other list is an array.
  Json(std::initializer_list<Json> values);

  static Json array();
  static Json object();

  /// The document; Error(kFormat) naming `path` and the place.
  static Json parse(std::string_view text, std::string_view path, const JsonLimits& limits = {});
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

  // The value as its type; Error(kInternal) when it is of another one: ask first.
  [[nodiscard]] bool boolean() const;
  [[nodiscard]] std::uint64_t whole_number() const;
  [[nodiscard]] const std::int64_t* negative_number() const;  ///< nullptr unless it is an integer below 0
  [[nodiscard]] double real_number() const;                   ///< of any number
  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] std::span<const Json> elements() const;  ///< of an array
  [[nodiscard]] std::span<const Member> items() const;   ///< of an object

  [[nodiscard]] std::size_t size() const;  ///< elements or members; 0 of any other value
  [[nodiscard]] bool empty() const { return size() == 0; }

  /// The value of a key; nullptr when there is none, or when this is not an object.
  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] bool contains(std::string_view key) const { return find(key) != nullptr; }
  [[nodiscard]] const Json& at(std::string_view key) const;  ///< Error(kInternal) when there is none
  /// The value of a key, made null where missing. A null becomes an object first.
  Json& operator[](std::string_view key);
  /// Adds or replaces members.
  void update(const Json& other);
  /// Takes a member out of the object; null when there was none.
  Json take(std::string_view key);
  /// A null becomes an array first.
  void push_back(Json value);

  /// Objects are equal when they have equal members in any order.
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
  /// Adds a member that is not there.
  void append(const std::string& key, Json value);
  [[noreturn]] void mistaken_for(const char* type) const;

  std::variant<std::monostate, bool, std::uint64_t, std::int64_t, double, std::string, Array, Object> value_;
};

struct Json::Member {
  std::string key;
  Json value;
};

/// `text` as a JSON string with its quotes, escaped as `format` says.
std::string json_quoted(std::string_view text, const JsonFormat& format);

/// Keys sorted by code point, indent 2, non-ASCII as \uXXXX, a newline at the end: what Python's
/// json.dumps(value, indent=2, sort_keys=True) + "\n" gives. Throws Error(kUsage) for a string that is not UTF-8.
std::string python_json(const Json& value);

/// A found value in a message: one line, cut after `limit` bytes.
std::string shown_json(const Json& value, std::size_t limit);

}  // namespace cairn::base
