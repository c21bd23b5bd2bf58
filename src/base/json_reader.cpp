#include "base/json_reader.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace cairn::base {
namespace {

constexpr std::size_t kShownBytes = 40;

}  // namespace

std::string JsonReader::where() const {
  const std::string document = one_line(document_);
  return place_.empty() ? document : fmt::format("{}: {}", document, place_);
}

void JsonReader::fail(const std::string& what) const { throw Error(kind_, fmt::format("{}: {}", where(), what)); }

void JsonReader::mistyped(std::string_view expected) const {
  const bool is_container = value_->is_object() || value_->is_array();
  fail(fmt::format("must be {}, found {}", expected,
                   is_container ? value_->type_name() : shown_json(*value_, kShownBytes)));
}

void JsonReader::check_object() const {
  if (!value_->is_object()) mistyped("an object");
}

void JsonReader::check_array() const {
  if (!value_->is_array()) mistyped("an array");
}

JsonReader JsonReader::member(const Json& value, std::string_view key) const {
  return {value, document_, kind_, (place_.empty() ? "" : place_ + ".") + printable(key)};
}

JsonReader JsonReader::item(std::size_t index) const {
  return {value_->elements()[index], document_, kind_, fmt::format("{}[{}]", place_, index)};
}

void JsonReader::check_keys(std::initializer_list<std::string_view> allowed) const {
  check_object();
  for (const auto& [key, unused] : value_->items()) {
    if (std::ranges::find(allowed, key) != allowed.end()) continue;
    fail(fmt::format("unknown key '{}'; allowed: {}", printable(key), joined(allowed)));
  }
}

std::optional<JsonReader> JsonReader::find(std::string_view key) const {
  check_object();
  const Json* found = value_->find(key);
  if (found == nullptr) return std::nullopt;
  return member(*found, key);
}

JsonReader JsonReader::at(std::string_view key) const {
  if (auto found = find(key)) return *std::move(found);
  fail(fmt::format("the key '{}' is missing", printable(key)));
}

std::uint64_t JsonReader::number_or(std::string_view key, std::uint64_t fallback) const {
  const auto found = find(key);
  return found ? found->number() : fallback;
}

std::string JsonReader::text_or(std::string_view key, std::string_view fallback) const {
  const auto found = find(key);
  return found ? found->text() : std::string(fallback);
}

std::vector<JsonReader::Member> JsonReader::members() const {
  check_object();
  std::vector<Member> out;
  out.reserve(value_->size());
  for (const auto& [key, value] : value_->items()) out.push_back({key, member(value, key)});
  return out;
}

std::vector<JsonReader> JsonReader::items() const {
  check_array();
  std::vector<JsonReader> out;
  out.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) out.push_back(item(i));
  return out;
}

std::uint64_t JsonReader::number() const {
  if (!value_->is_number_unsigned()) mistyped("a whole number, 0 or more");
  return value_->whole_number();
}

std::uint64_t JsonReader::number_from(std::uint64_t least) const {
  const std::uint64_t out = number();
  if (out < least) fail(fmt::format("must be at least {}, found {}", least, out));
  return out;
}

std::uint64_t JsonReader::number_within(std::uint64_t least, std::uint64_t most) const {
  const bool is_whole = value_->is_number_unsigned();
  if (!is_whole || value_->whole_number() < least || value_->whole_number() > most) {
    mistyped(fmt::format("a whole number from {} to {}", least, most));
  }
  return value_->whole_number();
}

bool JsonReader::flag() const {
  if (!value_->is_boolean()) mistyped("true or false");
  return value_->boolean();
}

const std::string& JsonReader::text() const {
  if (!value_->is_string()) mistyped("a string");
  return value_->text();
}

std::vector<std::uint64_t> JsonReader::numbers() const {
  check_array();
  std::vector<std::uint64_t> out;
  out.reserve(value_->size());
  for (const Json& number : value_->elements()) {
    if (!number.is_number_unsigned()) (void)item(out.size()).number();  // throws
    out.push_back(number.whole_number());
  }
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
