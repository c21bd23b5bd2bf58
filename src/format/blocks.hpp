// `cairn.blocks`: the checksums of every block of every data file, in binary, protected by its own checksum.
//
// Byte layout: FORMAT.md. A block is [i * block_bytes, min((i+1) * block_bytes, size)) of a file, header included.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"

namespace cairn::format {

inline constexpr const char* kBlocksFile = "cairn.blocks";

inline constexpr std::uint64_t kDefaultBlockBytes = 4ULL << 20;
struct FileBlocks {
  std::string name;
  std::uint64_t size_bytes = 0;
  std::vector<std::uint32_t> crcs;  ///< standard CRC-32C of each of the ceil(size / block) blocks
};

struct BlockTable {
  std::uint64_t block_bytes = kDefaultBlockBytes;
  std::vector<FileBlocks> files;
};

/// Standard CRC-32C of the whole file, combined from its block CRCs.
std::uint32_t file_digest(const FileBlocks& file, std::uint64_t block_bytes);

base::Bytes encode_blocks(const BlockTable& table);

/// Computes the size of encode_blocks()'s result before there is a table.
class BlockTableSize {
 public:
  /// `block_bytes` must not be 0.
  explicit BlockTableSize(std::uint64_t block_bytes) : block_bytes_(block_bytes) {}
  void add(std::uint64_t name_bytes, std::uint64_t file_bytes);
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  std::uint64_t block_bytes_;
  std::uint64_t rows_bytes_ = 0;
};

/// Throws Error(kFormat) naming `path`: a bad magic number or version, fields or counts that are impossible, a
/// wrong checksum of the table itself, an unsafe or repeated file name.
BlockTable decode_blocks(std::span<const std::byte> bytes, std::string_view path);

/// A file of a block table: a view of the table's bytes.
class BlockRow {
 public:
  BlockRow(std::string_view name, std::uint64_t size_bytes, std::span<const std::byte> crcs)
      : name_(name), size_bytes_(size_bytes), crcs_(crcs) {}

  [[nodiscard]] std::string_view name() const { return name_; }
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  /// Checksum of a block. Throws std::out_of_range if the file has no such block.
  [[nodiscard]] std::uint32_t crc(std::uint64_t block) const;
  [[nodiscard]] FileBlocks unpacked() const;

 private:
  std::string_view name_;
  std::uint64_t size_bytes_;
  std::span<const std::byte> crcs_;
};

/// kCounts skips the table's checksum and the checks of names, for bytes that another rank has fully checked.
enum class BlockChecks { kAll, kCounts };

/// A stored block table, for callers that look up a few of its millions of checksums. Copies share the bytes.
class BlockRows {
 public:
  /// Throws the errors of decode_blocks(); with kCounts, except those about the checksum and the names.
  BlockRows(base::Bytes bytes, std::string_view path, BlockChecks checks = BlockChecks::kAll);

  [[nodiscard]] std::uint64_t block_bytes() const { return block_bytes_; }
  [[nodiscard]] std::span<const BlockRow> files() const { return files_; }
  /// The whole table.
  [[nodiscard]] const base::Bytes& bytes() const { return *bytes_; }

 private:
  std::shared_ptr<const base::Bytes> bytes_;
  std::uint64_t block_bytes_ = 0;
  std::vector<BlockRow> files_;  ///< views of `bytes_`
};

/// Collects raw block CRCs from pieces of files in any order. Pieces must not overlap. Rank-local: the caller combines
/// all ranks' raw words (one flat array in file order) by XOR, with comm's all_reduce.
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

namespace cairn::format::blocks_layout {

// Positions of the fields of `cairn.blocks`, for its encoder and its decoder. FORMAT.md explains every byte.

inline constexpr std::string_view kMagic = "CAIRNBLK";
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kHeaderBytes = 48;      // as written by version 1; a reader uses the value in the header
inline constexpr std::size_t kFileHeaderBytes = 24;  // name length, reserved, size, block count
inline constexpr std::size_t kTrailerBytes = 4;      // masked CRC-32C of all preceding bytes
inline constexpr std::size_t kCrcBytes = 4;
inline constexpr std::size_t kUnit = 8;  // names and CRC arrays are padded to multiples of this

/// Encodes a CRC that is stored inside bytes with a CRC of their own. The CRC of any message that ends with its own CRC
/// is the constant 0x48674bc7; without the mask the manifest's checksum of `cairn.blocks` would fit every block table.
/// LevelDB and TFRecord use the same mask.
constexpr std::uint32_t masked(std::uint32_t crc) { return std::rotr(crc, 15) + 0xa282ead8u; }

}  // namespace cairn::format::blocks_layout
