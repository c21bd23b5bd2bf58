// Strict UTF-8: what every text in Cairn's files must be before anything else looks at it.
//
// RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. The JSON library checks strings only, while a
// safetensors header must be UTF-8 as a whole, and that rule has an error kind of its own.
#pragma once

#include <cstddef>
#include <string_view>

namespace cairn::base {

/// Byte position of the first ill-formed sequence, or npos when all of `text` is well-formed UTF-8.
std::size_t find_invalid_utf8(std::string_view text);

inline bool is_utf8(std::string_view text) { return find_invalid_utf8(text) == std::string_view::npos; }

}  // namespace cairn::base
