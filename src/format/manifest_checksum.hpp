// Where a manifest holds the checksum of itself. Only its writer and its reader include this.
//
// The checksum is of all bytes of the text, with eight zeros in the place of its own digits. Its key stands in a line of
// its own at the outermost level, which the writer's form makes unique: inside strings a quote is escaped, and deeper keys
// are indented more.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

#include "format/manifest_keys.hpp"

namespace cairn::format {

inline constexpr std::size_t kChecksumDigits = 8;

/// Offset of the digits; npos when there is no such line.
inline std::size_t own_checksum_place(std::string_view text) {
  const std::string line = fmt::format("\n  \"{}\": \"", manifest_keys::kManifestCrc);
  const std::size_t at = text.find(line);
  if (at == std::string_view::npos || text.size() - at - line.size() < kChecksumDigits) return std::string_view::npos;
  return at + line.size();
}

}  // namespace cairn::format
