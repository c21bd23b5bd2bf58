#include "interop/paddle/config.hpp"

#include <fmt/core.h>

#include <utility>

#include "base/text.hpp"
#include "interop/file_names.hpp"

namespace cairn::interop {

base::Json config_of(const Reading& reading) {
  constexpr const char* kConfig = "config.json";
  constexpr std::uint64_t kMostMemoryBytes = 64 << 20;
  const auto text = reading.directory().json.find(kConfig);
  if (text == reading.directory().json.end()) {
    if (!reading.directory().others.contains(kConfig)) return base::Json::object();
    throw reading.error(ErrorKind::kFormat, kConfig,
                        fmt::format("it has more than the {} that are looked into; such a configuration is not one",
                                    base::format_size(most_text_bytes(kConfig))));
  }
  base::Json config = base::Json::parse(text->second, reading.raw_path_of(kConfig),
                                        {.dialect = base::JsonDialect::kPython, .memory_bytes = kMostMemoryBytes});
  return config.is_object() ? std::move(config) : base::Json::object();
}

std::string text_of_config(const base::Json& config, const char* key) {
  const base::Json* value = config.find(key);
  return value != nullptr && value->is_string() ? value->text() : "";
}

std::optional<std::uint64_t> size_of_config(const base::Json& config, const char* key) {
  const base::Json* value = config.find(key);
  if (value == nullptr || !value->is_number_unsigned()) return std::nullopt;
  return value->whole_number();
}

std::optional<bool> tied_of_config(const base::Json& config) {
  const base::Json* tied = config.find("tie_word_embeddings");
  if (tied == nullptr || !tied->is_boolean()) return std::nullopt;
  return *tied == base::Json(true);
}

}  // namespace cairn::interop
