#include "bench/raw_layout.hpp"

#include <algorithm>

#include "base/checked.hpp"

namespace cairn::bench {

std::uint64_t RawLayout::begin_of(int index, int shares) const {
  const std::uint64_t pages = base::ceil_div(total_bytes_, kRawPageBytes);
  const auto count = static_cast<std::uint64_t>(shares);
  const auto at = static_cast<std::uint64_t>(index);
  const std::uint64_t first_page = pages / count * at + std::min(at, pages % count);
  return std::min(first_page * kRawPageBytes, total_bytes_);
}

std::uint64_t RawLayout::file_bytes(int file) const { return begin_of(file + 1, writers_) - begin_of(file, writers_); }

std::vector<RawPiece> RawLayout::pieces_of(int rank, int readers) const {
  const std::uint64_t begin = begin_of(rank, readers);
  const std::uint64_t end = begin_of(rank + 1, readers);
  std::vector<RawPiece> pieces;
  for (int file = 0; file < writers_; ++file) {
    const std::uint64_t file_begin = begin_of(file, writers_);
    const std::uint64_t from = std::max(begin, file_begin);
    const std::uint64_t to = std::min(end, begin_of(file + 1, writers_));
    if (from < to) pieces.push_back({static_cast<std::uint32_t>(file), from - file_begin, to - from});
  }
  return pieces;
}

}  // namespace cairn::bench
