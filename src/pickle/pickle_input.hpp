// Reads the bytes of a pickle from its source in windows. Only for pickle_reader.cpp.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.hpp"
#include "pickle/pickle.hpp"

namespace cairn::pickle {

/// Windows start small and double up to a limit. The data of tensors is skipped, and between two tensors a pickle has
/// only a few hundred bytes.
class PickleInput {
 public:
  PickleInput(const base::ByteSource& source, std::string_view path, std::uint64_t begin)
      : source_(source), path_(path), offset_(begin) {
    if (begin > source.size_bytes) fail(begin, "the file ends before");
  }

  [[nodiscard]] std::uint64_t offset() const { return offset_; }
  [[nodiscard]] std::uint64_t left() const { return source_.size_bytes - offset_; }

  std::uint8_t byte() {
    if (first_ == window_.size()) fill(1);
    ++offset_;
    return static_cast<std::uint8_t>(window_[first_++]);
  }

  /// The next bytes, valid until the next call.
  std::string_view take(std::uint64_t bytes) {
    if (bytes > window_.size() - first_) fill(bytes);
    const std::string_view out(reinterpret_cast<const char*>(window_.data()) + first_, bytes);
    first_ += bytes;
    offset_ += bytes;
    return out;
  }

  void skip(std::uint64_t bytes) {
    need(bytes);
    if (bytes > window_.size() - first_) {
      window_.clear();
      first_ = 0;
      next_bytes_ = kFirstWindow;
    } else {
      first_ += bytes;
    }
    offset_ += bytes;
  }

  /// Reads a little-endian number of up to 8 bytes.
  std::uint64_t number(std::uint64_t bytes) {
    const std::string_view from = take(bytes);
    std::uint64_t out = 0;
    for (std::size_t i = from.size(); i-- > 0;) out = out << 8 | static_cast<std::uint8_t>(from[i]);
    return out;
  }

  double real() {
    const std::string_view from = take(8);
    std::uint64_t bits = 0;
    for (const char c : from) bits = bits << 8 | static_cast<std::uint8_t>(c);
    return std::bit_cast<double>(bits);
  }

  /// The bytes before the next newline, which is skipped; valid until the next call.
  std::string_view line() {
    const std::uint64_t begin = offset_;
    for (std::uint64_t length = 0;; ++length) {
      if (length == kLongestLine) fail(begin, "a line of more than " + std::to_string(kLongestLine) + " bytes");
      if (length == window_.size() - first_) fill(length + 1);
      if (window_[first_ + length] == std::byte{'\n'}) return take(length + 1).substr(0, length);
    }
  }

  /// Throws unless `bytes` more bytes follow.
  void need(std::uint64_t bytes) const {
    if (bytes <= left()) return;
    fail(offset_, "the file ends " + std::to_string(left()) + " bytes on, where " + std::to_string(bytes) +
                      " bytes are announced: it is not whole, or not a pickle");
  }

  [[noreturn]] void fail(std::uint64_t offset, const std::string& what) const {
    base::fail_format(path_, "byte " + std::to_string(offset) + ": " + what);
  }

 private:
  static constexpr std::uint64_t kFirstWindow = 4096;
  static constexpr std::uint64_t kLargestWindow = 256 * 1024;
  static constexpr std::uint64_t kLongestLine = 1 << 20;

  /// Moves the window to the current offset, and fills it with at least `bytes` bytes.
  void fill(std::uint64_t bytes) {
    need(bytes);
    window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
    const std::uint64_t have = window_.size();
    const std::uint64_t wanted = std::min(std::max(bytes, have + next_bytes_), left());
    next_bytes_ = std::min(2 * next_bytes_, kLargestWindow);
    window_.resize(wanted);
    source_.read(std::span(window_).subspan(have), offset_ + have);
  }

  const base::ByteSource& source_;
  std::string_view path_;
  std::uint64_t offset_;  ///< offset of the next byte
  std::vector<std::byte> window_;
  std::size_t first_ = 0;  ///< next byte in the window
  std::uint64_t next_bytes_ = kFirstWindow;
};

}  // namespace cairn::pickle
