// A manifest that a test has changed, with the checksum of the new text.
#pragma once

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/bytes.hpp"
#include "format/crc32c.hpp"

namespace cairn::test {

inline std::string signed_manifest(nlohmann::json manifest) {
  manifest["manifest_crc32c"] = "00000000";
  std::string text = manifest.dump(2) + "\n";
  constexpr std::string_view kKey = "\"manifest_crc32c\": \"";
  text.replace(text.rfind(kKey) + kKey.size(), 8, fmt::format("{:08x}", format::crc32c(base::as_bytes(text))));
  return text;
}

}  // namespace cairn::test
