// Raw CRCs of pieces, shifted to the end of their block and added up there.
#include <fmt/core.h>

#include <algorithm>

#include "base/checked.hpp"
#include "cairn/error.hpp"
#include "format/blocks.hpp"
#include "format/crc32c.hpp"

namespace cairn::format {

BlockAccumulator::BlockAccumulator(std::span<const std::uint64_t> file_sizes, std::uint64_t block_bytes)
    : file_sizes_(file_sizes.begin(), file_sizes.end()), block_bytes_(block_bytes) {
  if (block_bytes == 0) throw Error(ErrorKind::kUsage, "the block size of checksums is 0; it must be positive");
  std::uint64_t blocks = 0;
  first_block_.reserve(file_sizes.size() + 1);
  for (const std::uint64_t size : file_sizes) {
    first_block_.push_back(blocks);
    blocks = base::add(blocks, base::ceil_div(size, block_bytes), "number of blocks");
  }
  first_block_.push_back(blocks);
  words_.assign(blocks, 0);
}

void BlockAccumulator::add(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> piece) {
  if (file >= file_sizes_.size() || offset > file_sizes_[file] || piece.size() > file_sizes_[file] - offset) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("checksum of {} bytes at offset {} of file number {}, which has {} bytes ({} files)", piece.size(),
                    offset, file, file < file_sizes_.size() ? file_sizes_[file] : 0, file_sizes_.size()));
  }
  const std::uint64_t size = file_sizes_[file];
  while (!piece.empty()) {
    const std::uint64_t block = offset / block_bytes_;
    const std::uint64_t left_in_file = size - block * block_bytes_;
    const std::uint64_t block_end = left_in_file < block_bytes_ ? size : (block + 1) * block_bytes_;
    const std::uint64_t count = std::min<std::uint64_t>(piece.size(), block_end - offset);
    const std::uint32_t raw = raw_crc32c(piece.first(count));
    words_[first_block_[file] + block] ^= shift_crc32c(raw, block_end - offset - count);
    piece = piece.subspan(count);
    offset += count;
  }
}

std::uint32_t BlockAccumulator::crc_of(std::uint32_t file, std::uint64_t block) const {
  const auto raw = static_cast<std::uint32_t>(words_.at(first_block_.at(file) + block) & 0xffffffffu);
  return finish_crc32c(raw, std::min(block_bytes_, file_sizes_[file] - block * block_bytes_));
}

BlockTable BlockAccumulator::finish(std::span<const std::string> names) const {
  if (names.size() != file_sizes_.size()) {
    throw Error(ErrorKind::kInternal,
                fmt::format("block table: {} names for {} files", names.size(), file_sizes_.size()));
  }
  BlockTable table;
  table.block_bytes = block_bytes_;
  table.files.resize(names.size());
  for (std::size_t f = 0; f < names.size(); ++f) {
    FileBlocks& file = table.files[f];
    file.name = names[f];
    file.size_bytes = file_sizes_[f];
    const std::uint64_t blocks = first_block_[f + 1] - first_block_[f];
    for (std::uint64_t block = 0; block < blocks; ++block) {
      file.crcs.push_back(crc_of(static_cast<std::uint32_t>(f), block));
    }
  }
  return table;
}

}  // namespace cairn::format
