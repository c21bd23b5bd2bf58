// Typed access to config.json; see config.hpp.
#include "shard/families/config.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "cairn/error.hpp"

namespace cairn::shard {
namespace {

constexpr std::uint64_t kMostNumber = std::uint64_t{1} << 31;
constexpr std::uint64_t kMostCount = 65536;

[[noreturn]] void fail(std::string_view key, const std::string& what) {
  throw Error(ErrorKind::kFormat, fmt::format("config.json: key '{}' {}", key, what));
}

std::string shown(const nlohmann::json& value) {
  return base::printable(value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace), 40);
}

std::uint64_t bounded(std::string_view key, const nlohmann::json& value, std::uint64_t least, std::uint64_t most) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() < least || value.get<std::uint64_t>() > most) {
    fail(key, fmt::format("must be a whole number from {} to {}, found {}", least, most, shown(value)));
  }
  return value.get<std::uint64_t>();
}

}  // namespace

struct Config::Document {
  nlohmann::json json;

  [[nodiscard]] const nlohmann::json* find(std::string_view key) const {
    const auto found = json.find(key);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  }
  [[nodiscard]] const nlohmann::json& at(std::string_view key) const {
    const nlohmann::json* value = find(key);
    if (value == nullptr) fail(key, "is missing");
    return *value;
  }
};

Config::Config(std::string_view json_text) {
  auto document = std::make_unique<Document>();
  document->json = nlohmann::json::parse(json_text, nullptr, false);
  if (!document->json.is_object()) throw Error(ErrorKind::kFormat, "config.json is not a JSON object");
  document_ = std::move(document);
}

Config::~Config() = default;

bool Config::has(std::string_view key) const { return document_->find(key) != nullptr; }

std::uint64_t Config::number(std::string_view key) const { return bounded(key, document_->at(key), 1, kMostNumber); }

std::uint64_t Config::number(std::string_view key, std::uint64_t fallback) const {
  return has(key) ? bounded(key, document_->at(key), 0, kMostNumber) : fallback;
}

std::uint64_t Config::count(std::string_view key) const { return bounded(key, document_->at(key), 1, kMostCount); }

bool Config::flag(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  const nlohmann::json& value = document_->at(key);
  if (!value.is_boolean()) fail(key, "must be true or false, found " + shown(value));
  return value.get<bool>();
}

std::string Config::text(std::string_view key, std::string_view fallback) const {
  if (!has(key)) return std::string(fallback);
  const nlohmann::json& value = document_->at(key);
  if (!value.is_string()) fail(key, "must be a string, found " + shown(value));
  return value.get<std::string>();
}

std::vector<std::uint64_t> Config::numbers(std::string_view key) const {
  std::vector<std::uint64_t> out;
  if (!has(key)) return out;
  const nlohmann::json& value = document_->at(key);
  if (!value.is_array()) fail(key, "must be a list, found " + shown(value));
  for (const nlohmann::json& item : value) out.push_back(bounded(key, item, 0, kMostNumber));
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
  const nlohmann::json* value = document_->find("quantization_config");
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) fail("quantization_config", "must be an object");
  Quantization out;
  if (const auto method = value->find("quant_method"); method != value->end() && method->is_string()) {
    out.method = method->get<std::string>();
  }
  if (const auto block = value->find("weight_block_size"); block != value->end() && !block->is_null()) {
    if (!block->is_array() || block->size() != 2)
      fail("weight_block_size", "must be [rows, columns], found " + shown(*block));
    out.block_rows = bounded("weight_block_size", (*block)[0], 1, kMostNumber);
    out.block_columns = bounded("weight_block_size", (*block)[1], 1, kMostNumber);
  }
  return out;
}

}  // namespace cairn::shard
