#include "format/stored_checkpoint.hpp"

#include "base/json.hpp"
#include "base/json_reader.hpp"

namespace cairn::format {

StoredTensor stored_tensor(const PlacedTensor& tensor) {
  StoredTensor out{std::string(tensor.section),
                   std::string(tensor.name),
                   tensor.dtype,
                   {tensor.shape.begin(), tensor.shape.end()},
                   {tensor.boxes.begin(), tensor.boxes.end()}};
  if (!tensor.in_parts) {
    const Box whole{std::vector<std::uint64_t>(out.shape.size(), 0), out.shape};
    out.boxes = {{tensor.file, tensor.offset_bytes, whole}};
  }
  return out;
}

namespace {

constexpr const char* kCodec = "codec";
constexpr const char* kFirst = "first";
constexpr const char* kSecond = "second";
constexpr const char* kShape = "shape";

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
  const base::Json json = base::Json::parse(text, context);
  const base::JsonReader object(json, context);
  object.check_keys({kCodec, kFirst, kSecond, kShape});
  return {object.at(kCodec).text(), object.at(kFirst).text(), object.at(kSecond).text(), object.at(kShape).numbers()};
}

}  // namespace cairn::format
