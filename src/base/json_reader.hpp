// Reading a JSON layout strictly: every access names the key in its error, and keys that no one asked for are errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>
#include "base/json.hpp"

namespace cairn::base {

/// A JSON value and the path that leads to it ("rules[2].cuts[0]"). A view: the document outlives it.
class JsonReader {
 public:
  JsonReader(const Json& value, std::string path) : value_(&value), path_(std::move(path)) {}

  /// Throws Error(kUsage): "layout JSON: <path>: <what>".
  [[noreturn]] void fail(const std::string& what) const;
  [[nodiscard]] const std::string& path() const { return path_; }

  /// The value must be an object with no other keys than these.
  void check_keys(std::initializer_list<std::string_view> allowed) const;
  [[nodiscard]] bool has(std::string_view key) const;
  [[nodiscard]] JsonReader at(std::string_view key) const;
  [[nodiscard]] std::optional<JsonReader> find(std::string_view key) const;
  [[nodiscard]] std::vector<std::string> keys() const;

  [[nodiscard]] std::vector<JsonReader> items() const;
  [[nodiscard]] std::uint64_t number() const;
  [[nodiscard]] std::uint64_t number_from(std::uint64_t least) const;
  [[nodiscard]] bool flag() const;
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::vector<std::uint64_t> numbers() const;
  /// A string, or an array of strings.
  [[nodiscard]] std::vector<std::string> texts() const;
  /// The value as compact JSON with sorted keys: equal for equal values.
  [[nodiscard]] std::string dump() const { return value_->dump({.sorted = true}); }
  [[nodiscard]] bool is_array() const { return value_->is_array(); }

 private:
  const Json* value_;
  std::string path_;
};

}  // namespace cairn::base
