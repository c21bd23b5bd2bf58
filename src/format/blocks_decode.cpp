// The block table from bytes. Every count is compared with the bytes that are left before memory is taken for it.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

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

class BlocksReader {
 public:
  BlocksReader(std::span<const std::byte> bytes, std::string_view path) : all_(bytes), rest_(bytes), path_(path) {}

  BlockTable read() {
    const std::uint64_t file_count = read_header();
    if (file_count > rest_.size() / layout::kFileHeaderBytes) {
      fail(fmt::format("says it describes {} files, too many for the {} bytes that follow", file_count, rest_.size()));
    }
    table_.files.reserve(file_count);
    for (std::uint64_t i = 0; i < file_count; ++i) table_.files.push_back(read_file());
    if (!rest_.empty()) fail(fmt::format("{} bytes follow the last of its {} files", rest_.size(), file_count));
    check_unique();
    return std::move(table_);
  }

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

  std::uint64_t number(std::size_t bytes, const char* what) {
    const auto from = take(bytes, what);
    std::uint64_t value = 0;
    for (std::size_t i = bytes; i-- > 0;) value = value << 8 | std::to_integer<std::uint64_t>(from[i]);
    return value;
  }

  std::uint32_t u32(const char* what) { return static_cast<std::uint32_t>(number(4, what)); }
  std::uint64_t u64(const char* what) { return number(8, what); }

  /// Reads the fixed header, leaves `rest_` at the first file and before the trailer. Returns the number of files.
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
    table_.block_bytes = u64("the header");
    const std::uint64_t file_count = u64("the header");
    check_whole(u64("the header"));
    if (required_flags != 0) {
      fail(fmt::format("flags {:#x} are not known to this build and must be; use a newer Cairn", required_flags));
    }
    if (table_.block_bytes == 0) fail("the block size is 0");
    if (table_.block_bytes > kMaxBlockBytes) {
      fail(fmt::format("the block size is {} bytes; at most {} are read", table_.block_bytes, kMaxBlockBytes));
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
    const std::uint32_t found = layout::masked(crc32c(all_.first(all_.size() - layout::kTrailerBytes)));
    if (stored != found) {
      fail(fmt::format("its own checksum is {:08x} and its bytes give {:08x}; it is damaged", stored, found));
    }
    rest_ = fields;
  }

  FileBlocks read_file() {
    FileBlocks file;
    const std::uint32_t name_bytes = u32("the name length of a file");
    const std::uint32_t reserved = u32("a reserved field");
    file.size_bytes = u64("the size of a file");
    const std::uint64_t block_count = u64("the block count of a file");
    const auto name = take(name_bytes, "a file name");
    file.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    check_relative_path(file.name, path_);
    if (!base::is_utf8(file.name)) fail(fmt::format("file name '{}' is not UTF-8", base::printable(file.name)));
    if (reserved != 0)
      fail(fmt::format("file '{}': the reserved field is {}, not 0", base::printable(file.name), reserved));
    skip_padding();
    const std::uint64_t expected = base::ceil_div(file.size_bytes, table_.block_bytes);
    if (block_count != expected || block_count > rest_.size() / layout::kCrcBytes) {
      fail(fmt::format("file '{}': {} blocks are listed; {} bytes in blocks of {} make {}, and {} bytes follow",
                       base::printable(file.name), block_count, file.size_bytes, table_.block_bytes, expected,
                       rest_.size()));
    }
    file.crcs.reserve(block_count);
    for (std::uint64_t i = 0; i < block_count; ++i) file.crcs.push_back(u32("checksums"));
    skip_padding();
    return file;
  }

  void skip_padding() {
    const std::size_t at = all_.size() - layout::kTrailerBytes - rest_.size();
    for (const std::byte byte : take(base::round_up(at, layout::kUnit) - at, "padding")) {
      if (byte != std::byte{0}) fail(fmt::format("padding at byte {} is not zero", at));
    }
  }

  void check_unique() const {
    std::vector<std::string_view> names;
    names.reserve(table_.files.size());
    for (const FileBlocks& file : table_.files) names.push_back(file.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) fail(fmt::format("file '{}' appears twice", base::printable(*twice)));
  }

  std::span<const std::byte> all_;
  std::span<const std::byte> rest_;
  std::string_view path_;
  BlockTable table_;
};

}  // namespace

BlockTable decode_blocks(std::span<const std::byte> bytes, std::string_view path) {
  return BlocksReader(bytes, path).read();
}

}  // namespace cairn::format
