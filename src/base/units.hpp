// Sizes as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cairn::base {

/// Bytes of "4096", "5GB" (decimal: KB MB GB TB), "4MiB" (binary: KiB MiB GiB TiB); fractions ("1.5GB"), blanks and any
/// letter case are allowed; a bare K, M, G or T is binary. Throws Error(kUsage) for anything else, for a negative value
/// and for one above 2^63.
std::uint64_t parse_size(std::string_view text);

/// "1.90 GiB", "512 B": three significant places, binary units.
std::string format_size(std::uint64_t bytes);

/// A name from a file or a user, made safe for a one-line message: control characters, DEL, quotes and backslash are
/// escaped as \xNN, and what is longer than `limit` bytes is cut with "...".
std::string printable(std::string_view text, std::size_t limit = 200);

}  // namespace cairn::base
