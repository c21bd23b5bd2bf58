// Access to values, and their text.
#include "base/json.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::base {
namespace {

using Tree = nlohmann::ordered_json;

/// The tree of a value that is neither an array nor an object.
Tree scalar_of(const Json& value) {
  if (value.is_null()) return nullptr;
  if (value.is_boolean()) return value.boolean();
  if (value.is_number_unsigned()) return value.whole_number();
  if (value.is_string()) return value.text();
  if (const std::int64_t* negative = value.negative_number()) return *negative;
  return value.real_number();
}

std::string text_of(const Tree& scalar, const JsonFormat& format) {
  return scalar.dump(format.indent, ' ', format.ascii, Tree::error_handler_t::replace);
}

Error not_storable(const std::string& what) {
  return {ErrorKind::kUsage, fmt::format("cannot be stored as JSON: {}", what)};
}

std::string quoted_strictly(std::string_view text, const JsonFormat& format) {
  if (!format.is_lenient && !is_utf8(text)) throw not_storable(fmt::format("'{}' is not UTF-8", printable(text)));
  return text_of(Tree(text), format);
}

/// The place of the first surrogate (JsonDialect::kPython), or the end of the text.
std::size_t find_surrogate(std::string_view text) {
  const auto is_within = [](char c, unsigned char least) {
    return static_cast<unsigned char>(c) >= least && static_cast<unsigned char>(c) < 0xC0;
  };
  for (std::size_t at = 0; at + 2 < text.size(); ++at) {
    if (text[at] == '\xED' && is_within(text[at + 1], 0xA0) && is_within(text[at + 2], 0x80)) return at;
  }
  return text.size();
}

std::string quoted_as_python(std::string_view text, const JsonFormat& format) {
  std::string out = "\"";
  for (;;) {
    const std::size_t next = find_surrogate(text);
    const std::string part = quoted_strictly(text.substr(0, next), format);
    out.append(part, 1, part.size() - 2);
    if (next == text.size()) return out + '"';
    const auto low_bits = [&](std::size_t i) { return static_cast<unsigned>(text[next + i]) & 0x3FU; };
    out += fmt::format("\\u{:04x}", 0xD000U | low_bits(1) << 6 | low_bits(2));
    text.remove_prefix(next + 3);
  }
}

std::string quoted(std::string_view text, const JsonFormat& format) {
  const bool has_surrogates = format.dialect == JsonDialect::kPython && !is_utf8(text);
  return has_surrogates ? quoted_as_python(text, format) : quoted_strictly(text, format);
}

/// A number that is not finite.
const char* special_text_of(double value, const JsonFormat& format) {
  if (format.dialect == JsonDialect::kPython) return std::isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity";
  if (!format.is_lenient) throw not_storable("a number is not finite");
  return "null";
}

std::string text_of(const Json& scalar, const JsonFormat& format) {
  if (scalar.is_string()) return quoted(scalar.text(), format);
  if (scalar.is_number_float() && !std::isfinite(scalar.real_number())) {
    return special_text_of(scalar.real_number(), format);
  }
  return text_of(scalar_of(scalar), format);
}

/// Writes arrays and objects; nlohmann writes scalars. A whole nlohmann tree would need memory to be destroyed, and
/// would end the process if there is none.
class JsonWriter {
 public:
  explicit JsonWriter(const JsonFormat& format) : format_(format) {}

  void put(const Json& value) {
    if (value.is_array()) {
      put_all('[', value.elements(), ']', [&](const Json& element) { put(element); });
    } else if (value.is_object()) {
      std::vector<const Json::Member*> members;
      for (const Json::Member& member : value.items()) members.push_back(&member);
      if (format_.sorted) {
        std::ranges::sort(members, {}, [](const Json::Member* member) { return std::string_view(member->key); });
      }
      put_all('{', members, '}', [&](const Json::Member* member) {
        text_ += quoted(member->key, format_) + (format_.indent < 0 ? ":" : ": ");
        put(member->value);
      });
    } else {
      text_ += text_of(value, format_);
    }
  }
  std::string take() { return std::move(text_); }

 private:
  template <class Items, class Put>
  void put_all(char open, const Items& items, char close, const Put& put_item) {
    text_ += open;
    ++depth_;
    bool is_first = true;
    for (const auto& item : items) {
      if (!is_first) text_ += ',';
      is_first = false;
      new_line();
      put_item(item);
    }
    --depth_;
    if (!is_first) new_line();
    text_ += close;
  }
  void new_line() {
    if (format_.indent >= 0) text_.append(1, '\n').append(depth_ * static_cast<std::size_t>(format_.indent), ' ');
  }

  const JsonFormat& format_;
  std::string text_;
  std::size_t depth_ = 0;
};

}  // namespace

Json::Json() = default;
Json::~Json() = default;
// Avoids the variant's own copy, which in GCC 12's library destroys unconstructed objects if memory is short.
Json::Json(const Json& other) {
  std::visit([this]<class Value>(const Value& value) { value_.emplace<Value>(value); }, other.value_);
}
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json& other) { return *this = Json(other); }
Json& Json::operator=(Json&&) noexcept = default;
Json::Json(bool value) : value_(value) {}
Json::Json(double value) : value_(value) {}
Json::Json(std::string value) : value_(std::move(value)) {}
Json::Json(std::string_view value) : value_(std::string(value)) {}
Json::Json(const char* value) : value_(std::string(value)) {}
Json::Json(Whole value) : value_(value.value) {}
Json::Json(Negative value) : value_(value.value) {}

Json::Json(std::initializer_list<Json> values) {
  const bool is_object = std::ranges::all_of(values, [](const Json& value) {
    return value.is_array() && value.size() == 2 && value.elements()[0].is_string();
  });
  if (!is_object) {
    value_ = Array(values);
    return;
  }
  Object members;
  for (const Json& value : values) members.push_back({value.elements()[0].text(), value.elements()[1]});
  value_ = std::move(members);
}

Json Json::array() {
  Json out;
  out.value_ = Array();
  return out;
}

Json Json::object() {
  Json out;
  out.value_ = Object();
  return out;
}

std::string Json::dump(const JsonFormat& format) const {
  JsonWriter writer(format);
  writer.put(*this);
  return writer.take();
}

bool Json::is_null() const { return std::holds_alternative<std::monostate>(value_); }
bool Json::is_boolean() const { return std::holds_alternative<bool>(value_); }
bool Json::is_number_unsigned() const { return std::holds_alternative<std::uint64_t>(value_); }
bool Json::is_number_float() const { return std::holds_alternative<double>(value_); }
bool Json::is_string() const { return std::holds_alternative<std::string>(value_); }
bool Json::is_array() const { return std::holds_alternative<Array>(value_); }
bool Json::is_object() const { return std::holds_alternative<Object>(value_); }

const char* Json::type_name() const {
  constexpr const char* kNames[] = {"null", "boolean", "number", "number", "number", "string", "array", "object"};
  return kNames[value_.index()];
}

void Json::mistaken_for(const char* type) const {
  throw internal_error(fmt::format("a JSON {} was taken for {}", type_name(), type));
}

bool Json::boolean() const {
  if (!is_boolean()) mistaken_for("a boolean");
  return std::get<bool>(value_);
}

std::uint64_t Json::whole_number() const {
  if (!is_number_unsigned()) mistaken_for("an unsigned integer");
  return std::get<std::uint64_t>(value_);
}

const std::int64_t* Json::negative_number() const { return std::get_if<std::int64_t>(&value_); }

double Json::real_number() const {
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*value);
  mistaken_for("a number");
}

const std::string& Json::text() const {
  if (!is_string()) mistaken_for("a string");
  return std::get<std::string>(value_);
}

std::span<const Json> Json::elements() const {
  if (!is_array()) mistaken_for("an array");
  return std::get<Array>(value_);
}

std::span<const Json::Member> Json::items() const {
  if (!is_object()) mistaken_for("an object");
  return std::get<Object>(value_);
}

std::size_t Json::size() const {
  if (const auto* array = std::get_if<Array>(&value_)) return array->size();
  if (const auto* object = std::get_if<Object>(&value_)) return object->size();
  return 0;
}

const Json* Json::find(std::string_view key) const {
  const auto* object = std::get_if<Object>(&value_);
  if (object == nullptr) return nullptr;
  const auto at = std::ranges::find(*object, key, &Member::key);
  return at == object->end() ? nullptr : &at->value;
}

const Json& Json::at(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) throw internal_error(fmt::format("JSON without the key '{}'", printable(key)));
  return *value;
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) value_ = Object();
  if (!is_object()) mistaken_for("an object");
  auto& object = std::get<Object>(value_);
  const auto at = std::ranges::find(object, key, &Member::key);
  if (at != object.end()) return at->value;
  return object.emplace_back(Member{std::string(key), Json()}).value;
}

void Json::append(const std::string& key, Json value) {
  std::get<Object>(value_).push_back(Member{key, std::move(value)});
}

void Json::update(const Json& other) {
  for (const Member& member : other.items()) (*this)[member.key] = member.value;
}

Json Json::take(std::string_view key) {
  auto* object = std::get_if<Object>(&value_);
  if (object == nullptr) return {};
  const auto at = std::ranges::find(*object, key, &Member::key);
  if (at == object->end()) return {};
  Json out = std::move(at->value);
  object->erase(at);
  return out;
}

void Json::push_back(Json value) {
  if (is_null()) value_ = Array();
  if (!is_array()) mistaken_for("an array");
  std::get<Array>(value_).push_back(std::move(value));
}

bool operator==(const Json& a, const Json& b) {
  if (a.value_.index() != b.value_.index() || a.size() != b.size()) return false;
  if (!a.is_object()) {
    if (a.is_array()) return std::ranges::equal(a.elements(), b.elements());
    if (a.is_string()) return a.text() == b.text();
    if (a.is_number_float() && std::isnan(a.real_number())) return std::isnan(b.real_number());
    return a.is_null() || (a.is_boolean() ? a.boolean() == b.boolean() : scalar_of(a) == scalar_of(b));
  }
  return std::ranges::all_of(a.items(), [&](const Json::Member& member) {
    const Json* other = b.find(member.key);
    return other != nullptr && *other == member.value;
  });
}

std::string json_quoted(std::string_view text, const JsonFormat& format) { return quoted(text, format); }

std::string python_json(const Json& value) { return value.dump({.indent = 2, .sorted = true, .ascii = true}) + "\n"; }

std::string shown_json(const Json& value, std::size_t limit) {
  constexpr JsonFormat kFormat = {.sorted = true, .ascii = true, .is_lenient = true, .dialect = JsonDialect::kPython};
  return printable(value.dump(kFormat), limit);
}

}  // namespace cairn::base
