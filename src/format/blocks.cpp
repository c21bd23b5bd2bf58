// `cairn.blocks`: accumulates checksums from pieces, encodes the table, and decodes it.
#include "format/blocks.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/crc32c.hpp"
#include "format/hf_index.hpp"
#include "format/limits.hpp"

namespace cairn::format {

// Accumulation: raw CRCs of pieces are shifted to the end of their block and combined by XOR.

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
    throw base::internal_error(
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
    throw base::internal_error(fmt::format("block table: {} names for {} files", names.size(), file_sizes_.size()));
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

// Encoding: the block table as little-endian bytes.

namespace {

namespace layout = blocks_layout;

class LittleEndianWriter {
 public:
  explicit LittleEndianWriter(base::Bytes& out) : out_(out) {}
  void u32(std::uint32_t value) { number(value, 4); }
  void u64(std::uint64_t value) { number(value, 8); }
  void text(std::string_view value) {
    const auto bytes = base::as_bytes(value);
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  void pad() { out_.resize(base::round_up(out_.size(), layout::kUnit)); }

 private:
  void number(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out_.push_back(static_cast<std::byte>(value >> (8 * i) & 0xff));
  }
  base::Bytes& out_;
};

std::uint64_t padded(std::uint64_t bytes) { return base::round_up(bytes, layout::kUnit); }

void check_counts(const FileBlocks& file, std::uint64_t block_bytes) {
  if (block_bytes == 0 || file.crcs.size() != base::ceil_div(file.size_bytes, block_bytes)) {
    throw base::internal_error(fmt::format("block table: file '{}' of {} bytes has {} checksums for blocks of {} bytes",
                                           base::printable(file.name), file.size_bytes, file.crcs.size(), block_bytes));
  }
}

std::uint64_t encoded_bytes(const BlockTable& table) {
  BlockTableSize size(table.block_bytes);
  for (const FileBlocks& file : table.files) size.add(file.name.size(), file.size_bytes);
  return size.bytes();
}

void check_names(const BlockTable& table) {
  std::vector<std::string_view> names;
  for (const FileBlocks& file : table.files) {
    check_relative_path(file.name, "block table");
    names.push_back(file.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    throw base::internal_error(fmt::format("block table: file '{}' appears twice", base::printable(*twice)));
  }
}

// Decoding. Every count is compared with the remaining bytes before memory is allocated for it.

std::uint64_t little_endian(std::span<const std::byte> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  return value;
}

class BlocksReader {
 public:
  BlocksReader(std::span<const std::byte> bytes, std::string_view path, BlockChecks checks)
      : all_(bytes), rest_(bytes), path_(path), checks_all_(checks == BlockChecks::kAll) {}

  std::vector<BlockRow> read() {
    const std::uint64_t file_count = read_header();
    if (file_count > rest_.size() / layout::kFileHeaderBytes) {
      fail(fmt::format("says it describes {} files, too many for the {} bytes that follow", file_count, rest_.size()));
    }
    files_.reserve(file_count);
    for (std::uint64_t i = 0; i < file_count; ++i) files_.push_back(read_file());
    if (!rest_.empty()) fail(fmt::format("{} bytes follow the last of its {} files", rest_.size(), file_count));
    if (checks_all_) check_unique();
    return std::move(files_);
  }

  [[nodiscard]] std::uint64_t block_bytes() const { return block_bytes_; }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kFormat, fmt::format("{}: block checksums: {}", base::one_line(path_), what));
  }

  std::span<const std::byte> take(std::uint64_t count, const char* what) {
    if (count > rest_.size()) fail(fmt::format("cut off within {}", what));
    const auto out = rest_.first(count);
    rest_ = rest_.subspan(count);
    return out;
  }

  std::uint32_t u32(const char* what) { return static_cast<std::uint32_t>(little_endian(take(4, what))); }
  std::uint64_t u64(const char* what) { return little_endian(take(8, what)); }

  /// Reads the fixed header; leaves `rest_` from the first file to the trailer. Returns the number of files.
  std::uint64_t read_header() {
    const auto magic = take(layout::kMagic.size(), "the magic");
    if (!std::ranges::equal(magic, base::as_bytes(layout::kMagic)))
      fail("the magic 'CAIRNBLK' is missing at its start");
    const std::uint32_t version = u32("the version");
    if (version != layout::kVersion) {
      fail(fmt::format("version {} is not known, this build reads version {}; use a newer Cairn", version,
                       layout::kVersion));
    }
    const std::uint32_t header_bytes = u32("the header");
    const std::uint32_t required_flags = u32("the header");
    static_cast<void>(u32("the header"));  // flags that may be ignored
    block_bytes_ = u64("the header");
    const std::uint64_t file_count = u64("the header");
    check_whole(u64("the header"));
    if (required_flags != 0) {
      fail(fmt::format("flags {:#x} are not known to this build and must be; use a newer Cairn", required_flags));
    }
    if (block_bytes_ == 0) fail("the block size is 0");
    if (block_bytes_ > limits::kBlockBytes) {
      fail(fmt::format("the block size is {} bytes; at most {} are read", block_bytes_, limits::kBlockBytes));
    }
    const std::size_t body_bytes = all_.size() - layout::kTrailerBytes;
    if (header_bytes < layout::kHeaderBytes || header_bytes % layout::kUnit != 0 || header_bytes > body_bytes) {
      fail(fmt::format("header length {} is not possible", header_bytes));
    }
    rest_ = all_.first(body_bytes).subspan(header_bytes);
    return file_count;
  }

  void check_whole(std::uint64_t stated_bytes) {
    if (stated_bytes != all_.size()) {
      fail(fmt::format("it says it is {} bytes long and is {}; it is cut off or damaged", stated_bytes, all_.size()));
    }
    if (rest_.size() < layout::kTrailerBytes) fail("cut off within its own checksum");
    const auto fields = std::exchange(rest_, all_.last(layout::kTrailerBytes));
    const std::uint32_t stored = u32("its own checksum");
    rest_ = fields;
    if (!checks_all_) return;
    const std::uint32_t found = layout::masked(crc32c(all_.first(all_.size() - layout::kTrailerBytes)));
    if (stored != found) {
      fail(fmt::format("its own checksum is {:08x} and its bytes give {:08x}; it is damaged", stored, found));
    }
  }

  BlockRow read_file() {
    const std::uint32_t name_bytes = u32("the name length of a file");
    const std::uint32_t reserved = u32("a reserved field");
    const std::uint64_t size_bytes = u64("the size of a file");
    const std::uint64_t block_count = u64("the block count of a file");
    const auto name_at = take(name_bytes, "a file name");
    const std::string_view name(reinterpret_cast<const char*>(name_at.data()), name_at.size());
    if (checks_all_) check_relative_path(name, path_);
    if (checks_all_ && !base::is_utf8(name)) fail(fmt::format("file name '{}' is not UTF-8", base::printable(name)));
    if (reserved != 0) fail(fmt::format("file '{}': the reserved field is {}, not 0", base::printable(name), reserved));
    skip_padding();
    const std::uint64_t expected = base::ceil_div(size_bytes, block_bytes_);
    if (block_count != expected || block_count > rest_.size() / layout::kCrcBytes) {
      fail(fmt::format("file '{}': {} blocks are listed; {} bytes in blocks of {} make {}, and {} bytes follow",
                       base::printable(name), block_count, size_bytes, block_bytes_, expected, rest_.size()));
    }
    const auto crcs = take(block_count * layout::kCrcBytes, "checksums");
    skip_padding();
    return {name, size_bytes, crcs};
  }

  void skip_padding() {
    const std::size_t at = all_.size() - layout::kTrailerBytes - rest_.size();
    for (const std::byte byte : take(base::round_up(at, layout::kUnit) - at, "padding")) {
      if (byte != std::byte{0}) fail(fmt::format("padding at byte {} is not zero", at));
    }
  }

  void check_unique() const {
    std::vector<std::string_view> names;
    names.reserve(files_.size());
    for (const BlockRow& file : files_) names.push_back(file.name());
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) fail(fmt::format("file '{}' appears twice", base::printable(*twice)));
  }

  std::span<const std::byte> all_;
  std::span<const std::byte> rest_;
  std::string_view path_;
  bool checks_all_;
  std::uint64_t block_bytes_ = 0;
  std::vector<BlockRow> files_;
};

}  // namespace

void BlockTableSize::add(std::uint64_t name_bytes, std::uint64_t file_bytes) {
  const std::uint64_t crcs = base::ceil_div(file_bytes, block_bytes_);
  rows_bytes_ = base::add(rows_bytes_, layout::kFileHeaderBytes + padded(name_bytes), "size of a block table");
  rows_bytes_ = base::add(rows_bytes_, padded(base::mul(crcs, layout::kCrcBytes, "size of a block table")),
                          "size of a block table");
}

std::uint64_t BlockTableSize::bytes() const { return layout::kHeaderBytes + rows_bytes_ + layout::kTrailerBytes; }

std::uint32_t file_digest(const FileBlocks& file, std::uint64_t block_bytes) {
  check_counts(file, block_bytes);
  std::uint32_t digest = 0;  // CRC-32C of no bytes
  for (std::size_t i = 0; i < file.crcs.size(); ++i) {
    const std::uint64_t begin = i * block_bytes;
    digest = combine_crc32c(digest, file.crcs[i], std::min(block_bytes, file.size_bytes - begin));
  }
  return digest;
}

base::Bytes encode_blocks(const BlockTable& table) {
  check_names(table);
  for (const FileBlocks& file : table.files) check_counts(file, table.block_bytes);
  const std::uint64_t total = encoded_bytes(table);
  base::Bytes out;
  out.reserve(total);
  LittleEndianWriter writer(out);
  writer.text(layout::kMagic);
  writer.u32(layout::kVersion);
  writer.u32(layout::kHeaderBytes);
  writer.u32(0);  // flags that a reader must support
  writer.u32(0);  // flags that a reader may ignore
  writer.u64(table.block_bytes);
  writer.u64(table.files.size());
  writer.u64(total);
  for (const FileBlocks& file : table.files) {
    writer.u32(base::narrow<std::uint32_t>(file.name.size(), "length of a file name"));
    writer.u32(0);
    writer.u64(file.size_bytes);
    writer.u64(file.crcs.size());
    writer.text(file.name);
    writer.pad();
    for (const std::uint32_t crc : file.crcs) writer.u32(crc);
    writer.pad();
  }
  writer.u32(layout::masked(crc32c(out)));
  return out;
}

std::uint32_t BlockRow::crc(std::uint64_t block) const {
  if (block >= crcs_.size() / layout::kCrcBytes) throw std::out_of_range("checksum of a block");
  return static_cast<std::uint32_t>(little_endian(crcs_.subspan(block * layout::kCrcBytes, layout::kCrcBytes)));
}

FileBlocks BlockRow::unpacked() const {
  FileBlocks file{std::string(name_), size_bytes_, std::vector<std::uint32_t>(crcs_.size() / layout::kCrcBytes)};
  if constexpr (std::endian::native == std::endian::little) {  // one copy for millions of numbers
    if (!crcs_.empty()) std::memcpy(file.crcs.data(), crcs_.data(), crcs_.size());
  } else {
    for (std::size_t block = 0; block < file.crcs.size(); ++block) file.crcs[block] = crc(block);
  }
  return file;
}

BlockTable decode_blocks(std::span<const std::byte> bytes, std::string_view path) {
  BlocksReader reader(bytes, path, BlockChecks::kAll);
  BlockTable table;
  for (const BlockRow& file : reader.read()) table.files.push_back(file.unpacked());
  table.block_bytes = reader.block_bytes();
  return table;
}

BlockRows::BlockRows(base::Bytes bytes, std::string_view path, BlockChecks checks)
    : bytes_(std::make_shared<const base::Bytes>(std::move(bytes))) {
  BlocksReader reader(*bytes_, path, checks);
  files_ = reader.read();
  block_bytes_ = reader.block_bytes();
}

}  // namespace cairn::format
