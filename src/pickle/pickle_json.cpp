#include "pickle/pickle_json.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/error.hpp"
#include "pickle/python_objects.hpp"

namespace cairn::pickle {
namespace {

using base::Json;

constexpr std::size_t kDepth = 100;

std::string hexadecimal(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte byte : bytes) out += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return out;
}

Json real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return value;
}

/// An element as JSON; nothing for types whose elements are not written.
std::optional<Json> element(const PickledArray& array, std::uint64_t bits) {
  switch (array.dtype.value_or(DType::kBF16)) {
    case DType::kBool: return Json(bits != 0);
    case DType::kU8:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64: return Json(bits);
    case DType::kI8: return Json(static_cast<std::int8_t>(bits));
    case DType::kI16: return Json(static_cast<std::int16_t>(bits));
    case DType::kI32: return Json(static_cast<std::int32_t>(bits));
    case DType::kI64: return Json(static_cast<std::int64_t>(bits));
    case DType::kF32: return real(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    case DType::kF64: return real(std::bit_cast<double>(bits));
    default: return std::nullopt;
  }
}

class Writer {
 public:
  explicit Writer(std::size_t most_bytes) : left_(most_bytes) {}

  /// The value as JSON; nothing if a limit is reached or the value contains itself.
  std::optional<Json> write(PickleValue from) {
    const PickleValue value = plain(from);
    if (path_.size() == kDepth || std::ranges::find(path_, value.id()) != path_.end() || !take(kValueBytes))
      return std::nullopt;
    path_.push_back(value.id());
    std::optional<Json> out = write_one(value);
    path_.pop_back();
    return out;
  }

 private:
  using Entries = std::vector<std::pair<PickleValue, PickleValue>>;

  /// The smallest size of a value in JSON, with its separator.
  static constexpr std::size_t kValueBytes = 2;

  /// Counts bytes before they are written.
  bool take(std::size_t bytes) {
    if (bytes > left_) return false;
    left_ -= bytes;
    return true;
  }

  std::optional<Json> write_one(PickleValue value) {
    switch (value.kind()) {
      case PickleKind::kNone: return Json(nullptr);
      case PickleKind::kBool: return Json(value.boolean());
      case PickleKind::kInteger: return Json(value.integer());
      case PickleKind::kLongInteger: return write_long(value);
      case PickleKind::kFloat: return real(value.real());
      case PickleKind::kText: return write_text(value);
      case PickleKind::kBytes: return value.is_text() ? write_text(value) : write_bytes(value.bytes());
      case PickleKind::kList:
      case PickleKind::kTuple:
      case PickleKind::kSet: return write_elements(value);
      case PickleKind::kDict: return write_entries(*dict_of(value));
      case PickleKind::kGlobal: return with("name", write_string(value.name()));
      case PickleKind::kObject: return write_object(value);
      case PickleKind::kPersistent: return with("persistent", write(value.persistent_id()));
    }
    return std::nullopt;
  }

  static std::optional<Json> with(const char* key, std::optional<Json> value) {
    if (!value) return std::nullopt;
    return Json({{key, *std::move(value)}});
  }

  std::optional<Json> write_string(std::string_view text) {
    if (!take(text.size())) return std::nullopt;
    return Json(text);
  }

  std::optional<Json> write_long(PickleValue value) {
    const std::string digits = value.long_integer();
    const bool fits = digits.starts_with("0x") && digits.size() <= 18;
    return fits ? Json(value.unsigned_integer()) : write_string(digits);
  }

  std::optional<Json> write_text(PickleValue value) {
    if (value.is_text()) return write_string(value.text());
    return Json({{"text", value.bytes().size_bytes}});
  }

  std::optional<Json> write_bytes(const PickledBytes& bytes) {
    Json out = Json::object();
    out["bytes"] = bytes.memory ? bytes.memory->size() : bytes.size_bytes;
    if (!bytes.memory) return out;
    if (!take(2 * bytes.memory->size())) return std::nullopt;
    out["hex"] = hexadecimal(*bytes.memory);
    return out;
  }

  std::optional<Json> write_elements(PickleValue value) {
    Json out = Json::array();
    for (std::size_t i = 0; i < value.size(); ++i) {
      auto part = write(value.at(i));
      if (!part) return std::nullopt;
      out.push_back(*std::move(part));
    }
    return out;
  }

  /// A JSON object if all keys have distinct names; otherwise {"dict": list of pairs}.
  std::optional<Json> write_entries(const Entries& entries) {
    if (entries.size() > left_ / kValueBytes) return std::nullopt;
    std::map<std::string, std::size_t> names;  // name -> number of the entry
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::optional<std::string> name = name_of_key(entries[i].first);
      if (!name || !names.try_emplace(*name, i).second) return with("dict", write_pairs(entries));
      if (!take(name->size())) return std::nullopt;
    }
    std::map<std::string, Json> out;
    for (const auto& [name, i] : names) {
      auto value = write(entries[i].second);
      if (!value) return std::nullopt;
      out.emplace(name, *std::move(value));
    }
    return Json(out);
  }

  std::optional<Json> write_pairs(const Entries& entries) {
    Json out = Json::array();
    for (const auto& entry : entries) {
      auto key = write(entry.first);
      auto value = write(entry.second);
      if (!key || !value) return std::nullopt;
      Json pair = Json::array();
      pair.push_back(*std::move(key));
      pair.push_back(*std::move(value));
      out.push_back(std::move(pair));
    }
    return out;
  }

  static std::optional<std::string> name_of_key(PickleValue key) {
    if (key.is_text()) return std::string(key.text());
    if (key.is(PickleKind::kInteger)) return std::to_string(key.integer());
    return std::nullopt;
  }

  std::optional<Json> write_object(PickleValue value) {
    if (const auto bytes = bytes_of(value)) return write_bytes(*bytes);
    if (const auto entries = dict_of(value)) return write_entries(*entries);
    if (const auto array = array_of(value)) return write_array(*array);
    if (const auto integer = integer_of(value)) return Json(*integer);
    if (const auto number = number_of(value)) return real(*number);
    auto name = write_string(value.name());
    bool is_whole = name.has_value();
    Json out = Json::object();
    if (is_whole) out["object"] = *std::move(name);
    const auto put = [&](const char* key, std::optional<Json> part) {
      is_whole = is_whole && part;
      if (is_whole) out[key] = *std::move(part);
    };
    if (value.arguments().size() > 0) put("arguments", write(value.arguments()));
    if (value.keywords()) put("keywords", write(*value.keywords()));
    if (value.state()) put("state", write(*value.state()));
    if (value.size() > 0) put("elements", write_elements(value));
    if (value.entries() > 0) {
      Entries entries;
      for (std::size_t i = 0; i < value.entries(); ++i) entries.push_back(value.entry(i));
      put("entries", write_entries(entries));
    }
    if (!is_whole) return std::nullopt;
    return out;
  }

  std::optional<Json> write_array(const PickledArray& array) {
    if (!take(array.type.size() + kValueBytes * array.shape.size())) return std::nullopt;
    Json out = Json::object();
    out["array"] = array.type;
    out["shape"] = Json(array.shape);
    if (!array.data.memory || array.is_fortran_order || array.item_bytes > 8) return out;
    const std::span<const std::byte> bytes = *array.data.memory;
    Json values = Json::array();
    for (std::size_t at = 0; at < bytes.size(); at += array.item_bytes) {
      if (!take(kValueBytes)) return std::nullopt;
      auto value = element(array, loaded(bytes.subspan(at, array.item_bytes), array.is_big_endian));
      if (!value) return out;
      values.push_back(*std::move(value));
    }
    out["values"] = std::move(values);
    return out;
  }

  std::size_t left_;                 ///< bytes that may still be written
  std::vector<std::uint32_t> path_;  ///< ids of values that are being written
};

}  // namespace

std::optional<Json> json_of(PickleValue value, std::size_t most_bytes) { return Writer(most_bytes).write(value); }

}  // namespace cairn::pickle
