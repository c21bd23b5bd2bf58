#include "checkpoint/content_digests.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/bytes.hpp"
#include "base/checked.hpp"
#include "comm/agree.hpp"
#include "format/sha.hpp"

namespace cairn::checkpoint {
namespace {

constexpr std::size_t kWords = 4;
constexpr std::size_t kDigitsOfWord = 16;

}  // namespace

ContentDigests::ContentDigests(const plan::FileLayout& layout, std::vector<bool> is_digested, std::uint64_t block_bytes)
    : layout_(layout), is_digested_(std::move(is_digested)), block_bytes_(block_bytes) {
  std::size_t blocks = 0;
  for (std::size_t file = 0; file < layout_.files.size(); ++file) {
    first_block_.push_back(blocks);
    if (is_digested_[file]) blocks += base::ceil_div(layout_.files[file].size_bytes, block_bytes_);
  }
  words_.resize(kWords * blocks);
}

void ContentDigests::add(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data) {
  const std::string& header = layout_.files[file].header;
  while (!data.empty()) {
    const std::uint64_t block = offset / block_bytes_;
    const std::uint64_t begin = block * block_bytes_;
    const std::uint64_t end = std::min(begin + block_bytes_, layout_.files[file].size_bytes);
    const auto piece = data.first(end - offset);
    std::span<const std::byte> before;
    if (begin < offset) before = base::as_bytes(header).subspan(begin, offset - begin);
    put(file, block, before, piece);
    data = data.subspan(piece.size());
    offset = end;
  }
}

void ContentDigests::add_header_blocks(std::span<const plan::Extent> extents) {
  for (const plan::Extent& extent : extents) {
    if (!is_digested_[extent.file]) continue;
    const plan::DataFile& file = layout_.files[extent.file];
    for (std::uint64_t begin = extent.begin; begin < extent.end; begin += block_bytes_) {
      const std::uint64_t end = std::min(begin + block_bytes_, file.size_bytes);
      if (end > file.header.size()) break;
      put(extent.file, begin / block_bytes_, base::as_bytes(file.header).subspan(begin, end - begin), {});
    }
  }
}

void ContentDigests::put(std::uint32_t file, std::uint64_t block, std::span<const std::byte> first,
                         std::span<const std::byte> second) {
  format::RunningSha256 sha;
  sha.add(first);
  sha.add(second);
  const std::string digits = sha.finish();
  for (std::size_t word = 0; word < kWords; ++word) {
    const char* const at = digits.data() + word * kDigitsOfWord;
    std::uint64_t value = 0;
    std::from_chars(at, at + kDigitsOfWord, value, 16);
    words_[kWords * (first_block_[file] + block) + word] = value;
  }
}

void ContentDigests::combine(comm::Communicator& communicator) {
  comm::agree(communicator, "combine the digests", [&] { combined_ = words_; });
  communicator.all_reduce(combined_, comm::ReduceOp::kXor);
}

std::string ContentDigests::digest_of(std::uint32_t file) const {
  const std::uint64_t size = layout_.files[file].size_bytes;
  const std::size_t blocks = base::ceil_div(size, block_bytes_);
  base::ByteWriter out;
  out.u64(size);
  out.u64(block_bytes_);
  for (std::size_t i = kWords * first_block_[file]; i < kWords * (first_block_[file] + blocks); ++i) {
    for (int byte = 7; byte >= 0; --byte) {  // as SHA-256 has them
      const auto value = static_cast<std::byte>(combined_[i] >> (8 * byte));
      out.raw(&value, 1);
    }
  }
  format::RunningSha256 sha;
  sha.add(out.take());
  return sha.finish();
}

}  // namespace cairn::checkpoint
