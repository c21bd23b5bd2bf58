// The block table as bytes, and the digest of a file from its blocks.
#include <fmt/core.h>

#include <algorithm>

#include "base/checked.hpp"
#include "base/text.hpp"
#include "cairn/error.hpp"
#include "format/blocks.hpp"
#include "format/blocks_layout.hpp"
#include "format/crc32c.hpp"
#include "format/hf_index.hpp"

namespace cairn::format {
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
    throw Error(ErrorKind::kInternal,
                fmt::format("block table: file '{}' of {} bytes has {} checksums for blocks of {} bytes",
                            base::printable(file.name), file.size_bytes, file.crcs.size(), block_bytes));
  }
}

std::uint64_t encoded_bytes(const BlockTable& table) {
  std::uint64_t total = layout::kHeaderBytes + layout::kTrailerBytes;
  for (const FileBlocks& file : table.files) {
    total += layout::kFileHeaderBytes + padded(file.name.size()) + padded(file.crcs.size() * layout::kCrcBytes);
  }
  return total;
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
    throw Error(ErrorKind::kInternal, fmt::format("block table: file '{}' appears twice", base::printable(*twice)));
  }
}

}  // namespace

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
  writer.u32(0);  // flags that a reader must know
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

}  // namespace cairn::format
