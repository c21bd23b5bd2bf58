// Strict JSON for the index and the manifest: files that people and other programs write.
//
// Beyond the JSON library: the text is UTF-8 without byte order mark or NUL, no object has a key twice (the library
// lets the last one win, and two readers would then see two checkpoints), and nesting is bounded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"

namespace cairn::format {

inline constexpr int kMaxJsonDepth = 127;

/// The document, or Error(kFormat) naming `path` and the place.
nlohmann::json parse_strict_json(std::string_view text, std::string_view path);

/// Keys sorted by code point, indent 2, non-ASCII as \uXXXX, a newline at the end: what Python's
/// json.dumps(value, indent=2, sort_keys=True) + "\n" gives. Throws Error(kUsage) for a string that is not UTF-8.
std::string dump_json(const nlohmann::json& value);

}  // namespace cairn::format
