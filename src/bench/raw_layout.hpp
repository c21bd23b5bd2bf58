// Where the bytes of a raw ceiling lie: one file per writing rank, seen as one row of bytes by any number of readers. Pure.
//
// A file per writer, because some file systems take writes to one file in turn, and a ceiling must not. Shares are cut at
// pages of 4 KiB, which O_DIRECT asks for; only the end of the last file need not be whole.
#pragma once

#include <cstdint>
#include <vector>

namespace cairn::bench {

inline constexpr std::uint64_t kRawPageBytes = 4096;

/// A contiguous part of a file; offset_bytes is a multiple of a page.
struct RawPiece {
  std::uint32_t file = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;

  friend bool operator==(const RawPiece&, const RawPiece&) = default;
};

class RawLayout {
 public:
  /// `total_bytes` in `writers` files. Requires: writers > 0.
  RawLayout(std::uint64_t total_bytes, int writers) : total_bytes_(total_bytes), writers_(writers) {}

  [[nodiscard]] std::uint64_t total_bytes() const { return total_bytes_; }
  [[nodiscard]] int files() const { return writers_; }
  /// May be 0, when there are more writers than pages.
  [[nodiscard]] std::uint64_t file_bytes(int file) const;
  /// What reader `rank` of `readers` reads, in order. All readers together read every byte once.
  [[nodiscard]] std::vector<RawPiece> pieces_of(int rank, int readers) const;

 private:
  /// First byte of share `index` of `shares`.
  [[nodiscard]] std::uint64_t begin_of(int index, int shares) const;

  std::uint64_t total_bytes_;
  int writers_;
};

}  // namespace cairn::bench
