// The bytes of a file, given piece by piece, so that nobody needs to hold them all.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "base/bytes.hpp"

namespace cairn::base {

/// Takes the next piece.
using PutBytes = std::function<void(std::span<const std::byte>)>;

struct ByteStream {
  std::uint64_t size_bytes = 0;
  /// Gives the bytes in order, as often as it is called. May throw in the middle, and at the end when they were not what was
  /// written once.
  std::function<void(const PutBytes&)> give = [](const PutBytes&) {};

  ByteStream() = default;
  ByteStream(std::uint64_t bytes, std::function<void(const PutBytes&)> function)
      : size_bytes(bytes), give(std::move(function)) {}
  /// What is in memory.
  ByteStream(Bytes bytes)  // NOLINT: bytes are a stream
      : size_bytes(bytes.size()), give([held = std::move(bytes)](const PutBytes& put) { put(held); }) {}
};

}  // namespace cairn::base
