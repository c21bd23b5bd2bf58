// The content of raw files: random bytes that no storage compresses, and that tell where they belong.
//
// A page is a page of one block of random bytes, repeated with the period of a request, so that a request's buffer is made
// once and before the clock; its first eight bytes are a hash of seed, file and offset, so that no two pages are alike, and a
// page of another place or of an earlier run is found.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/aligned_buffer.hpp"

namespace cairn::bench {

class RawPattern {
 public:
  /// `period_bytes`: a multiple of a page.
  RawPattern(std::uint64_t seed, std::uint64_t period_bytes);

  /// Fills a buffer that will hold bytes of a file from a multiple of the period on; stamp() completes it.
  void fill(std::span<std::byte> buffer) const;
  /// Marks every page of a filled buffer as that of the file from `offset_bytes` on.
  void stamp(std::span<std::byte> buffer, std::uint32_t file, std::uint64_t offset_bytes) const;

  /// Offset in the file of the first page that is not as it must be. `offset_bytes` is a multiple of a page.
  [[nodiscard]] std::optional<std::uint64_t> first_difference(std::span<const std::byte> found, std::uint32_t file,
                                                              std::uint64_t offset_bytes) const;

 private:
  [[nodiscard]] std::uint64_t mark_of(std::uint32_t file, std::uint64_t page) const;

  std::uint64_t seed_;
  base::AlignedBuffer period_;
};

}  // namespace cairn::bench
