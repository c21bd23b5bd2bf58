// Facts from a model's config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// The content of config.json; an empty object if the file is missing or not an object. Throws Error(kFormat) if it is
/// not JSON or too large.
base::Json config_of(const Reading& reading);

/// The string at that key, or "".
std::string text_of_config(const base::Json& config, const char* key);
std::optional<std::uint64_t> size_of_config(const base::Json& config, const char* key);
/// Whether embedding and head are one weight; nothing if config.json does not say.
std::optional<bool> tied_of_config(const base::Json& config);

}  // namespace cairn::interop
