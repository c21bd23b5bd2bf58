// Reads bounded numbers, names of dtypes and quantisation settings.
#include "shard/families/config.hpp"

#include <fmt/core.h>

#include "base/text.hpp"

namespace cairn::shard {
namespace {

constexpr std::uint64_t kMostNumber = std::uint64_t{1} << 31;
constexpr std::uint64_t kMostCount = 65536;

}  // namespace

std::optional<base::JsonReader> Config::find(std::string_view key) const {
  auto found = document().find(key);
  if (found && found->json().is_null()) found.reset();
  return found;
}

std::uint64_t Config::number(std::string_view key) const { return document().at(key).number_within(1, kMostNumber); }

std::uint64_t Config::number(std::string_view key, std::uint64_t fallback) const {
  const auto found = find(key);
  return found ? found->number_within(0, kMostNumber) : fallback;
}

std::uint64_t Config::count(std::string_view key) const { return document().at(key).number_within(1, kMostCount); }

bool Config::flag(std::string_view key, bool fallback) const {
  const auto found = find(key);
  return found ? found->flag() : fallback;
}

std::string Config::text(std::string_view key, std::string_view fallback) const {
  const auto found = find(key);
  return found ? found->text() : std::string(fallback);
}

std::vector<std::uint64_t> Config::numbers(std::string_view key) const {
  std::vector<std::uint64_t> out;
  if (const auto found = find(key)) {
    for (const base::JsonReader& item : found->items()) out.push_back(item.number_within(0, kMostNumber));
  }
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
  document().at(key).fail(
      fmt::format("'{}' is not known; known: float32, bfloat16, float16, float64", base::printable(name, 40)));
}

std::optional<Config::Quantization> Config::quantization() const {
  const auto value = find("quantization_config");
  if (!value) return std::nullopt;
  Quantization out;
  if (const auto method = value->find("quant_method"); method && method->json().is_string())
    out.method = method->text();
  if (const auto block = value->find("weight_block_size"); block && !block->json().is_null()) {
    const auto sizes = block->items();
    if (sizes.size() != 2) block->fail("must be [rows, columns]");
    out.block_rows = sizes[0].number_within(1, kMostNumber);
    out.block_columns = sizes[1].number_within(1, kMostNumber);
  }
  return out;
}

}  // namespace cairn::shard
