// Strict reading of a JSON document: callers ask for every value by type, nothing is converted, and every error names
// the document and the place in it. check_keys() refuses unknown keys.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.hpp"
#include "cairn/error.hpp"

namespace cairn::base {

/// A value and its place in the document ("rules[2].cuts[0]"). A view: document and name must outlive the reader.
class JsonReader {
 public:
  struct Member;

  /// The document itself. Errors have `kind` and begin with `document`: its path or a description.
  JsonReader(const Json& value, std::string_view document, ErrorKind kind = ErrorKind::kFormat)
      : JsonReader(value, document, kind, {}) {}

  /// Throws Error: "<document>: <place>: <what>".
  [[noreturn]] void fail(const std::string& what) const;
  [[nodiscard]] const std::string& place() const { return place_; }  ///< empty for the document itself
  [[nodiscard]] std::string where() const;                           ///< "<document>: <place>"
  [[nodiscard]] const Json& json() const { return *value_; }

  // Members of an object; Error if the value is not an object.

  void check_object() const;
  /// Throws Error if the object has a key that is not in `allowed`.
  void check_keys(std::initializer_list<std::string_view> allowed) const;
  [[nodiscard]] bool has(std::string_view key) const { return find(key).has_value(); }
  [[nodiscard]] std::optional<JsonReader> find(std::string_view key) const;
  [[nodiscard]] JsonReader at(std::string_view key) const;  ///< Error if the key is missing
  [[nodiscard]] std::uint64_t number_or(std::string_view key, std::uint64_t fallback) const;
  [[nodiscard]] std::string text_or(std::string_view key, std::string_view fallback) const;
  [[nodiscard]] std::vector<Member> members() const;

  // Accessors by type: Error if the value has a different type.

  [[nodiscard]] std::vector<JsonReader> items() const;  ///< elements of an array
  [[nodiscard]] std::uint64_t number() const;
  [[nodiscard]] std::uint64_t number_from(std::uint64_t least) const;
  [[nodiscard]] std::uint64_t number_within(std::uint64_t least, std::uint64_t most) const;
  [[nodiscard]] bool flag() const;
  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] std::vector<std::uint64_t> numbers() const;
  /// A string, or an array of one or more strings.
  [[nodiscard]] std::vector<std::string> texts() const;

 private:
  JsonReader(const Json& value, std::string_view document, ErrorKind kind, std::string place)
      : value_(&value), document_(document), kind_(kind), place_(std::move(place)) {}
  [[nodiscard]] JsonReader member(const Json& value, std::string_view key) const;
  [[nodiscard]] JsonReader item(std::size_t index) const;
  void check_array() const;
  [[noreturn]] void mistyped(std::string_view expected) const;

  const Json* value_;
  std::string_view document_;
  ErrorKind kind_;
  std::string place_;
};

struct JsonReader::Member {
  std::string key;
  JsonReader value;
};

}  // namespace cairn::base
