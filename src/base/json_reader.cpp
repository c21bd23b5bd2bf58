// Strict reading of a JSON layout; see json_reader.hpp.
#include "base/json_reader.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::base {

void JsonReader::fail(const std::string& what) const {
  throw Error(ErrorKind::kUsage, fmt::format("layout JSON: {}: {}", path_.empty() ? "the document" : path_, what));
}

void JsonReader::check_keys(std::initializer_list<std::string_view> allowed) const {
  if (!value_->is_object()) fail("must be an object");
  for (const auto& [key, unused] : value_->items()) {
    if (std::ranges::find(allowed, key) != allowed.end()) continue;
    std::string list;
    for (const std::string_view name : allowed) list += (list.empty() ? "" : ", ") + std::string(name);
    fail(fmt::format("unknown key '{}'; allowed: {}", printable(key), list));
  }
}

bool JsonReader::has(std::string_view key) const { return value_->is_object() && value_->contains(key); }

JsonReader JsonReader::at(std::string_view key) const {
  if (auto found = find(key)) return *found;
  fail(fmt::format("the key '{}' is missing", key));
}

std::optional<JsonReader> JsonReader::find(std::string_view key) const {
  if (!value_->is_object()) fail("must be an object");
  const Json* found = value_->find(key);
  if (found == nullptr) return std::nullopt;
  return JsonReader(*found, (path_.empty() ? "" : path_ + ".") + printable(key));
}

std::vector<std::string> JsonReader::keys() const {
  if (!value_->is_object()) fail("must be an object");
  std::vector<std::string> out;
  for (const auto& [key, unused] : value_->items()) out.push_back(key);
  return out;
}

std::vector<JsonReader> JsonReader::items() const {
  if (!value_->is_array()) fail("must be an array");
  std::vector<JsonReader> out;
  for (std::size_t i = 0; i < value_->size(); ++i)
    out.emplace_back(value_->elements()[i], fmt::format("{}[{}]", path_, i));
  return out;
}

std::uint64_t JsonReader::number() const {
  if (!value_->is_number_unsigned()) fail("must be a whole number, 0 or more");
  return value_->whole_number();
}

std::uint64_t JsonReader::number_from(std::uint64_t least) const {
  const std::uint64_t out = number();
  if (out < least) fail(fmt::format("must be at least {}", least));
  return out;
}

bool JsonReader::flag() const {
  if (!value_->is_boolean()) fail("must be true or false");
  return value_->boolean();
}

std::string JsonReader::text() const {
  if (!value_->is_string()) fail("must be a string");
  return value_->text();
}

std::vector<std::uint64_t> JsonReader::numbers() const {
  std::vector<std::uint64_t> out;
  for (const JsonReader& item : items()) out.push_back(item.number());
  return out;
}

std::vector<std::string> JsonReader::texts() const {
  if (value_->is_string()) return {text()};
  std::vector<std::string> out;
  for (const JsonReader& item : items()) out.push_back(item.text());
  if (out.empty()) fail("must not be empty");
  return out;
}

}  // namespace cairn::base
