// `cairn.blocks`: the checksums of every block of every data file, binary, checked by a checksum of its own.
//
// Bytes and fields: FORMAT.md. A block is [i * block_bytes, min((i+1) * block_bytes, size)) of a file, header included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace cairn::format {

inline constexpr std::uint64_t kDefaultBlockBytes = 4ULL << 20;
/// A reader holds one block in memory.
inline constexpr std::uint64_t kMaxBlockBytes = 1ULL << 30;

struct FileBlocks {
  std::string name;
  std::uint64_t size_bytes = 0;
  std::vector<std::uint32_t> crcs;  ///< standard CRC-32C of each block; ceil(size / block) of them
};

struct BlockTable {
  std::uint64_t block_bytes = kDefaultBlockBytes;
  std::vector<FileBlocks> files;
};

/// Standard CRC-32C of the whole file, combined from its block CRCs.
std::uint32_t file_digest(const FileBlocks& file, std::uint64_t block_bytes);

base::Bytes encode_blocks(const BlockTable& table);
/// Throws Error(kFormat) naming `path`: bad magic, version, counts that do not fit the size, its own checksum wrong,
/// unsafe or repeated file name.
BlockTable decode_blocks(std::span<const std::byte> bytes, std::string_view path);

/// Collects raw block CRCs from pieces of files in any order. Rank-local; XOR of the `raw` words of all ranks (one flat
/// array in file order, comm's all_reduce) gives the whole, whoever added which piece. Pieces must not overlap.
class BlockAccumulator {
 public:
  BlockAccumulator(std::span<const std::uint64_t> file_sizes, std::uint64_t block_bytes);
  void add(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> piece);
  /// One word per block, files in order; the low 32 bits hold the raw CRC.
  [[nodiscard]] std::span<std::uint64_t> raw_words() { return words_; }
  /// After the XOR over ranks: the standard CRC-32C of a block of a file.
  [[nodiscard]] std::uint32_t crc_of(std::uint32_t file, std::uint64_t block) const;
  /// After the XOR over ranks: the finished table. `names`: one per file.
  [[nodiscard]] BlockTable finish(std::span<const std::string> names) const;

 private:
  std::vector<std::uint64_t> file_sizes_;
  std::vector<std::size_t> first_block_;
  std::uint64_t block_bytes_;
  std::vector<std::uint64_t> words_;
};

}  // namespace cairn::format
