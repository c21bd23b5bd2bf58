// Facts from a model's config.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/json.hpp"
#include "interop/reading.hpp"

namespace cairn::interop {

/// An object, empty if the file is missing or has another value. Throws Error(kFormat) for a text that is not JSON.
base::Json config_of(const Reading& reading);

/// The text of that key, or "".
std::string text_of_config(const base::Json& config, const char* key);
std::optional<std::uint64_t> size_of_config(const base::Json& config, const char* key);
/// Whether embedding and head are one weight.
bool has_tied_weights(const base::Json& config);

}  // namespace cairn::interop
