// What a model's config.json says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// An object, empty where there is no such file or it is another value. Throws Error(kFormat) for one that is not JSON.
base::Json config_of(const Reading& reading);

/// The text of that key, or nothing.
std::string text_of_config(const base::Json& config, const char* key);
std::optional<std::uint64_t> size_of_config(const base::Json& config, const char* key);
/// Whether embedding and head are one weight.
bool has_tied_weights(const base::Json& config);

}  // namespace cairn::interop
