#include "format/coding.hpp"

#include <fmt/format.h>

#include "base/units.hpp"
#include "cairn/error.hpp"
#include "format/json_text.hpp"

namespace cairn::format {
namespace {

constexpr const char* kCodec = "codec";
constexpr const char* kFirst = "first";
constexpr const char* kSecond = "second";
constexpr const char* kShape = "shape";

Error wrong(std::string_view context, std::string_view what) {
  return {ErrorKind::kFormat, fmt::format("{}: {}", base::printable(context), what)};
}

std::string text_of(const nlohmann::json& object, const char* key, std::string_view context) {
  const auto field = object.find(key);
  if (field == object.end() || !field->is_string()) throw wrong(context, fmt::format("{} is no text", key));
  return field->get<std::string>();
}

std::vector<std::uint64_t> sizes_of(const nlohmann::json& object, const char* key, std::string_view context) {
  const auto field = object.find(key);
  const Error mistyped = wrong(context, fmt::format("{} is no list of sizes", key));
  if (field == object.end() || !field->is_array()) throw mistyped;
  std::vector<std::uint64_t> sizes;
  for (const nlohmann::json& size : *field) {
    if (!size.is_number_unsigned()) throw mistyped;
    sizes.push_back(size.get<std::uint64_t>());
  }
  return sizes;
}

}  // namespace

std::string encode_coding(const Coding& coding) {
  nlohmann::json object;
  object[kCodec] = coding.codec;
  object[kFirst] = coding.first;
  object[kSecond] = coding.second;
  object[kShape] = coding.shape;
  return object.dump();
}

Coding parse_coding(std::string_view text, std::string_view context) {
  const nlohmann::json object = parse_strict_json(text, context);
  if (!object.is_object() || object.size() != 4) {
    throw wrong(context, fmt::format("is not an object of {}, {}, {} and {}", kCodec, kFirst, kSecond, kShape));
  }
  return {text_of(object, kCodec, context), text_of(object, kFirst, context), text_of(object, kSecond, context),
          sizes_of(object, kShape, context)};
}

}  // namespace cairn::format
