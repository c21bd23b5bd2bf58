// Typed access to config.json; see config.hpp.
#include "shard/families/config.hpp"

#include <fmt/core.h>

#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::shard {
namespace {

constexpr std::uint64_t kMostNumber = std::uint64_t{1} << 31;
constexpr std::uint64_t kMostCount = 65536;

[[noreturn]] void fail(std::string_view key, const std::string& what) {
  throw Error(ErrorKind::kFormat, fmt::format("config.json: key '{}' {}", key, what));
}

std::string shown(const base::Json& value) { return base::shown_json(value, 40); }

std::uint64_t bounded(std::string_view key, const base::Json& value, std::uint64_t least, std::uint64_t most) {
  if (!value.is_number_unsigned() || value.whole_number() < least || value.whole_number() > most) {
    fail(key, fmt::format("must be a whole number from {} to {}, found {}", least, most, shown(value)));
  }
  return value.whole_number();
}

}  // namespace

Config::Config(std::string_view json_text) : document_(base::Json::parse(json_text, "config.json")) {
  if (!document_.is_object()) throw Error(ErrorKind::kFormat, "config.json is not a JSON object");
}

const base::Json* Config::find(std::string_view key) const {
  const base::Json* found = document_.find(key);
  return found == nullptr || found->is_null() ? nullptr : found;
}

const base::Json& Config::at(std::string_view key) const {
  const base::Json* value = find(key);
  if (value == nullptr) fail(key, "is missing");
  return *value;
}

bool Config::has(std::string_view key) const { return find(key) != nullptr; }

std::uint64_t Config::number(std::string_view key) const { return bounded(key, at(key), 1, kMostNumber); }

std::uint64_t Config::number(std::string_view key, std::uint64_t fallback) const {
  return has(key) ? bounded(key, at(key), 0, kMostNumber) : fallback;
}

std::uint64_t Config::count(std::string_view key) const { return bounded(key, at(key), 1, kMostCount); }

bool Config::flag(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  const base::Json& value = at(key);
  if (!value.is_boolean()) fail(key, "must be true or false, found " + shown(value));
  return value.boolean();
}

std::string Config::text(std::string_view key, std::string_view fallback) const {
  if (!has(key)) return std::string(fallback);
  const base::Json& value = at(key);
  if (!value.is_string()) fail(key, "must be a string, found " + shown(value));
  return value.text();
}

std::vector<std::uint64_t> Config::numbers(std::string_view key) const {
  std::vector<std::uint64_t> out;
  if (!has(key)) return out;
  const base::Json& value = at(key);
  if (!value.is_array()) fail(key, "must be a list, found " + shown(value));
  for (const base::Json& item : value.elements()) out.push_back(bounded(key, item, 0, kMostNumber));
  return out;
}

DType Config::dtype() const {
  const std::string_view key = has("dtype") ? "dtype" : "torch_dtype";
  std::string name = text(key, "float32");
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name == "float32" || name == "float") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16" || name == "half") return DType::kF16;
  if (name == "float64" || name == "double") return DType::kF64;
  fail(key, fmt::format("'{}' is not known; known: float32, bfloat16, float16, float64", base::printable(name, 40)));
}

std::optional<Config::Quantization> Config::quantization() const {
  const base::Json* value = find("quantization_config");
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail("quantization_config", "must be an object");
  Quantization out;
  if (const base::Json* method = value->find("quant_method"); method != nullptr && method->is_string()) {
    out.method = method->text();
  }
  if (const base::Json* block = value->find("weight_block_size"); block != nullptr && !block->is_null()) {
    if (!block->is_array() || block->size() != 2)
      fail("weight_block_size", "must be [rows, columns], found " + shown(*block));
    out.block_rows = bounded("weight_block_size", block->elements()[0], 1, kMostNumber);
    out.block_columns = bounded("weight_block_size", block->elements()[1], 1, kMostNumber);
  }
  return out;
}

}  // namespace cairn::shard
