#include "format/stored_checkpoint.hpp"

#include <fmt/core.h>

#include "base/json.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::format {
namespace {

constexpr const char* kCodec = "codec";
constexpr const char* kFirst = "first";
constexpr const char* kSecond = "second";
constexpr const char* kShape = "shape";

Error wrong(std::string_view context, std::string_view what) {
  return {ErrorKind::kFormat, fmt::format("{}: {}", base::printable(context), what)};
}

std::string text_of(const base::Json& object, const char* key, std::string_view context) {
  const base::Json* field = object.find(key);
  if (field == nullptr || !field->is_string()) throw wrong(context, fmt::format("{} is not a string", key));
  return field->text();
}

std::vector<std::uint64_t> sizes_of(const base::Json& object, const char* key, std::string_view context) {
  const base::Json* field = object.find(key);
  const Error mistyped = wrong(context, fmt::format("{} is not a list of sizes", key));
  if (field == nullptr || !field->is_array()) throw mistyped;
  std::vector<std::uint64_t> sizes;
  for (const base::Json& size : field->elements()) {
    if (!size.is_number_unsigned()) throw mistyped;
    sizes.push_back(size.whole_number());
  }
  return sizes;
}

}  // namespace

std::string encode_coding(const Coding& coding) {
  base::Json object;
  object[kCodec] = coding.codec;
  object[kFirst] = coding.first;
  object[kSecond] = coding.second;
  object[kShape] = coding.shape;
  return object.dump({.sorted = true});
}

Coding parse_coding(std::string_view text, std::string_view context) {
  const base::Json object = base::Json::parse(text, context);
  if (!object.is_object() || object.size() != 4) {
    throw wrong(context, fmt::format("is not an object of {}, {}, {} and {}", kCodec, kFirst, kSecond, kShape));
  }
  return {text_of(object, kCodec, context), text_of(object, kFirst, context), text_of(object, kSecond, context),
          sizes_of(object, kShape, context)};
}

}  // namespace cairn::format
