// The padding of flat buffers: elements outside all pieces.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "shard/flat_layout.hpp"

namespace cairn::shard {

/// Elements of every rank's local buffer, padding included.
inline std::uint64_t local_elements(const FlatBuffer& buffer, std::uint64_t ways) {
  return buffer.buckets.empty() ? 0 : buffer.buckets.back().end / ways;
}

/// Elements of a local buffer that belong to no tensor.
struct FlatPad {
  std::uint64_t at = 0;
  std::uint64_t count = 0;

  friend bool operator==(const FlatPad&, const FlatPad&) = default;
};

/// The padding of rank `at`, ascending.
inline std::vector<FlatPad> pads_of(const FlatBuffer& buffer, std::span<const std::uint64_t> numels, std::uint64_t ways,
                                    std::uint64_t at) {
  std::vector<FlatPad> pads;
  std::uint64_t end = 0;
  for (const FlatPiece& piece : pieces_of(buffer, numels, ways, at)) {
    if (piece.at > end) pads.push_back({end, piece.at - end});
    end = piece.at + (piece.end - piece.begin);
  }
  if (const std::uint64_t all = local_elements(buffer, ways); all > end) pads.push_back({end, all - end});
  return pads;
}

}  // namespace cairn::shard
