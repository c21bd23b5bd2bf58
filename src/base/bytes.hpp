// A little-endian byte string, written and read field by field, for metadata that ranks send each other.
//
// The reader checks every length before it allocates, so that a damaged message is an error, not a large allocation.
// Not used on disk; disk formats are in src/format/FORMAT.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/internal_error.hpp"
#include "cairn/error.hpp"

namespace cairn::base {

using Bytes = std::vector<std::byte>;

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

class ByteWriter {
 public:
  /// Adds bytes without their length, which the reader must know.
  void raw(const void* data, std::size_t size) {
    const auto* from = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), from, from + size);
  }
  void u64(std::uint64_t value) { raw(&value, sizeof value); }
  void text(std::string_view value) { blob(as_bytes(value)); }
  void u64s(std::span<const std::uint64_t> values) {
    u64(values.size());
    raw(values.data(), values.size_bytes());
  }
  void blob(std::span<const std::byte> value) {
    u64(value.size());
    raw(value.data(), value.size());
  }
  [[nodiscard]] const Bytes& bytes() const { return bytes_; }
  Bytes take() { return std::exchange(bytes_, {}); }

 private:
  Bytes bytes_;
};

/// Reads a byte string of ByteWriter. Throws Error(kInternal) if the string ends too early.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  /// A view of the next `size` bytes.
  std::span<const std::byte> raw(std::uint64_t size) {
    if (size > rest_.size()) throw internal_error("a message between ranks is shorter than it says");
    const auto out = rest_.first(size);
    rest_ = rest_.subspan(size);
    return out;
  }
  std::uint64_t u64() {
    std::uint64_t value = 0;
    std::memcpy(&value, raw(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() { return std::string(text_view()); }
  std::string_view text_view() {
    const auto from = raw(u64());
    return {reinterpret_cast<const char*>(from.data()), from.size()};
  }
  std::vector<std::uint64_t> u64s() {
    const auto from = raw_u64s();
    std::vector<std::uint64_t> values(from.size() / sizeof(std::uint64_t));
    if (!values.empty()) std::memcpy(values.data(), from.data(), from.size());
    return values;
  }
  void skip_u64s() { raw_u64s(); }
  Bytes blob() {
    const auto from = raw(u64());
    return {from.begin(), from.end()};
  }
  [[nodiscard]] bool done() const { return rest_.empty(); }
  [[nodiscard]] std::size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> raw_u64s() {
    const std::uint64_t count = u64();
    const bool fits = count <= rest_.size() / sizeof(std::uint64_t);
    return raw(fits ? count * sizeof(std::uint64_t) : rest_.size() + 1);
  }

  std::span<const std::byte> rest_;
};

// The bytes of a file, produced or read piece by piece, so that they need not all be in memory.

/// Receives the next piece of the bytes.
using PutBytes = std::function<void(std::span<const std::byte>)>;

struct ByteStream {
  std::uint64_t size_bytes = 0;
  /// Produces all bytes in order, at every call. Can throw in the middle, or at the end if the bytes differ from those
  /// that were written.
  std::function<void(const PutBytes&)> give = [](const PutBytes&) {};

  ByteStream() = default;
  ByteStream(std::uint64_t bytes, std::function<void(const PutBytes&)> function)
      : size_bytes(bytes), give(std::move(function)) {}
  /// A stream of the given bytes.
  ByteStream(Bytes bytes)  // NOLINT: bytes are a stream
      : size_bytes(bytes.size()), give([held = std::move(bytes)](const PutBytes& put) { put(held); }) {}
};

/// Bytes that are read on demand: only the requested parts of a large file are read.
struct ByteSource {
  std::uint64_t size_bytes = 0;
  /// Fills `to` with the bytes at `at_bytes`, all of which must exist. Throws the errors of reading a file.
  std::function<void(std::span<std::byte> to, std::uint64_t at_bytes)> read;
};

}  // namespace cairn::base
