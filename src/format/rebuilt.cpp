#include "format/rebuilt.hpp"

#include <fmt/core.h>

#include <optional>
#include <string>

#include "base/text.hpp"
#include "cairn/error.hpp"

namespace cairn::format {
namespace {

Error wrong(std::string_view path, std::string_view what) {
  return {ErrorKind::kFormat, fmt::format("'{}': {}: {}", base::printable(path), kRebuiltKey, what)};
}

std::string text_of(const base::Json& rule, const char* key, std::string_view path) {
  const base::Json* field = rule.find(key);
  if (field == nullptr || !field->is_string()) throw wrong(path, fmt::format("{} is no text", key));
  return field->text();
}

Rebuilt rule_of(const std::string& section, const base::Json& rule, std::string_view path) {
  if (!rule.is_object() || rule.size() != 2) {
    throw wrong(path, fmt::format("'{}' is no object of from and dtype", base::printable(section)));
  }
  const std::string from = text_of(rule, "from", path);
  const std::string name = text_of(rule, "dtype", path);
  const std::optional<DType> dtype = dtype_from_name(name);
  if (section == kMasterWeightsSection && from == kModelSection && dtype == DType::kF32) {
    return {kMasterWeightsSection, kModelSection, *dtype};
  }
  if (section == kModelSection && from == kMasterWeightsSection && (dtype == DType::kBF16 || dtype == DType::kF16)) {
    return {kModelSection, kMasterWeightsSection, *dtype};
  }
  throw wrong(path, fmt::format("'{}' from '{}' in {} is none of: '{}' from '{}' in F32, '{}' from '{}' in BF16 or F16",
                                base::printable(section), base::printable(from), base::printable(name),
                                kMasterWeightsSection, kModelSection, kModelSection, kMasterWeightsSection));
}

}  // namespace

std::vector<Rebuilt> parse_rebuilt(const base::Json& extra, std::string_view path) {
  const base::Json* value = extra.find(kRebuiltKey);
  if (value == nullptr) return {};
  if (!value->is_object()) throw wrong(path, "is no object");
  std::vector<Rebuilt> rules;
  for (const auto& [section, rule] : value->items()) rules.push_back(rule_of(section, rule, path));
  return rules;
}

}  // namespace cairn::format
