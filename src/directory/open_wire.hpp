// An open checkpoint as bytes for the other ranks.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/bytes.hpp"
#include "directory/open.hpp"

namespace cairn::checkpoint {

/// `manifest` and `blocks` are sent as they stand on disk and parsed again by every rank.
struct OpenedTexts {
  std::optional<std::string> manifest;  ///< nothing: there is none; an empty one is a damaged one
  base::Bytes blocks;
};

base::Bytes encode_open(const OpenCheckpoint& checkpoint, const OpenedTexts& texts);
OpenCheckpoint decode_open(std::span<const std::byte> bytes);

/// Parses manifest and block table into `checkpoint`. Throws kFormat, or kIntegrity when the block file is not the one
/// that the manifest names.
void attach_texts(OpenCheckpoint& checkpoint, const OpenedTexts& texts);

}  // namespace cairn::checkpoint
