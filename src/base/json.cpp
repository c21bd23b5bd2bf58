// Builds the tree from the parser's events without recursion, and checks depth and keys while the document is parsed.
#include "base/json.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::base {
namespace {

using Tree = nlohmann::ordered_json;

void check_text(std::string_view text, std::string_view path) {
  const std::size_t bad = find_invalid_utf8(text);
  if (bad != std::string_view::npos) fail_format(path, fmt::format("byte {} is not UTF-8", bad));
  if (text.starts_with("\xEF\xBB\xBF")) fail_format(path, "begins with a byte order mark; JSON must not");
  const std::size_t nul = text.find('\0');
  if (nul != std::string_view::npos) fail_format(path, fmt::format("not JSON: NUL at byte {}", nul));
}

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
  const auto handler = format.is_lenient ? Tree::error_handler_t::replace : Tree::error_handler_t::strict;
  try {
    return scalar.dump(format.indent, ' ', format.ascii, handler);
  } catch (const Tree::type_error& error) {
    throw Error(ErrorKind::kUsage, fmt::format("text that is to be stored as JSON is not UTF-8: {}", error.what()));
  }
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
        text_ += text_of(Tree(member->key), format_) + (format_.indent < 0 ? ":" : ": ");
        put(member->value);
      });
    } else {
      text_ += text_of(scalar_of(value), format_);
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

/// Builds a Json from the parser's events.
class JsonBuilder {
 public:
  JsonBuilder(std::string_view path, const JsonLimits& limits) : path_(path), limits_(limits) {}

  Json take() { return std::move(root_); }

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(std::int64_t value) { return put(value); }
  bool number_unsigned(std::uint64_t value) { return put(value); }
  bool number_float(double value, const std::string&) { return put(value); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(std::vector<std::uint8_t>&) { return false; }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_array() { return close(); }
  bool end_object() {
    if (skipped_ > 0) return close();
    const auto members = open_.back()->items();
    std::vector<std::string_view> keys;
    keys.reserve(members.size());
    for (const Json::Member& member : members) keys.push_back(member.key);
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    if (twice != keys.end())
      fail_format(path_, fmt::format("the key '{}' appears twice in one object", printable(*twice)));
    return close();
  }
  bool key(std::string& value) {
    if (skipped_ > 0) return true;
    key_ = std::move(value);
    is_wanted_ = open_.size() > 1 || limits_.members.empty() ||
                 std::ranges::find(limits_.members, std::string_view(key_)) != limits_.members.end();
    return true;
  }
  template <class Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception&) {
    if constexpr (std::same_as<Exception, Tree::out_of_range>)
      fail_format(path_, "not valid JSON: a number is too large");
    fail_format(path_, fmt::format("not valid JSON at byte {}; the file is damaged or cut off", position));
  }

 private:
  /// Counts memory before the value is stored.
  void charge(const Json& value) {
    std::uint64_t bytes = sizeof(Json::Member) + key_.size();
    if (value.is_string()) bytes += value.text().size();
    if (bytes > limits_.memory_bytes - used_bytes_) {
      fail_format(path_, fmt::format("its values take more than {} of memory", format_size(limits_.memory_bytes)));
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
  bool put(Json value) {
    if (!is_skipped()) place(std::move(value));
    is_wanted_ = true;
    return true;
  }
  // Pointers in open_ stay valid: a parent grows only after its open child is closed.
  bool open(Json value) {
    if (open_.size() + skipped_ >= kMaxJsonDepth) {
      fail_format(path_, fmt::format("JSON is nested more than {} levels deep", kMaxJsonDepth));
    }
    if (is_skipped()) {
      ++skipped_;
      return true;
    }
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    if (skipped_ > 0) {
      is_wanted_ = --skipped_ == 0;
      return true;
    }
    open_.pop_back();
    return true;
  }

  std::string_view path_;
  JsonLimits limits_;
  std::uint64_t used_bytes_ = 0;
  std::size_t skipped_ = 0;  ///< open values that are not stored
  bool is_wanted_ = true;    ///< whether the last key names a wanted member
  Json root_;
  std::vector<Json*> open_;
  std::string key_;
};

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

Json Json::parse(std::string_view text, std::string_view path, const JsonLimits& limits) {
  check_text(text, path);
  JsonBuilder builder(path, limits);
  Tree::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
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
    return a.is_null() || (a.is_boolean() ? a.boolean() == b.boolean() : scalar_of(a) == scalar_of(b));
  }
  return std::ranges::all_of(a.items(), [&](const Json::Member& member) {
    const Json* other = b.find(member.key);
    return other != nullptr && *other == member.value;
  });
}

std::string json_quoted(std::string_view text, const JsonFormat& format) { return text_of(Tree(text), format); }

std::string python_json(const Json& value) { return value.dump({.indent = 2, .sorted = true, .ascii = true}) + "\n"; }

std::string shown_json(const Json& value, std::size_t limit) {
  return printable(value.dump({.sorted = true, .ascii = true, .is_lenient = true}), limit);
}

}  // namespace cairn::base
