// Digests of whole data files, by which a save recognises content that an earlier checkpoint has.
//
// A file's digest is the SHA-256 of its size and the block size (u64, little-endian), then the SHA-256 of each of its
// blocks, header included. The rank that has a block in a window digests it, and the digests of all blocks meet in
// one reduction. A CRC-32C would not do: two contents with the same one are easily found, and a state that was taken
// for another would be lost. For SHA-256 no such pair is known.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "plan/extents.hpp"
#include "plan/file_layout.hpp"

namespace cairn::checkpoint {

class ContentDigests {
 public:
  /// `is_digested`: by file of the layout. The layout, with the headers that this rank writes, must outlive the object.
  ContentDigests(const plan::FileLayout& layout, std::vector<bool> is_digested, std::uint64_t block_bytes);

  [[nodiscard]] bool has(std::uint32_t file) const { return is_digested_[file]; }
  /// Rank-local: bytes of a file after its header, up to the end of a block or the file; whole blocks, except that the
  /// first one may begin in the header.
  void add(std::uint32_t file, std::uint64_t offset, std::span<const std::byte> data);
  /// Rank-local: adds the blocks of these extents that the file's header fills.
  void add_header_blocks(std::span<const plan::Extent> extents);

  /// Collective: combines the blocks that all ranks have added so far.
  void combine(comm::Communicator& communicator);
  /// After combine(): the digest of a file of which all blocks were added, in 64 hexadecimal digits.
  [[nodiscard]] std::string digest_of(std::uint32_t file) const;

 private:
  void put(std::uint32_t file, std::uint64_t block, std::span<const std::byte> first,
           std::span<const std::byte> second);

  const plan::FileLayout& layout_;
  std::vector<bool> is_digested_;
  std::uint64_t block_bytes_;
  std::vector<std::size_t> first_block_;  ///< of each file, in `words_`
  std::vector<std::uint64_t> words_;      ///< four for each block that this rank added, otherwise 0
  std::vector<std::uint64_t> combined_;   ///< the same of all ranks
};

}  // namespace cairn::checkpoint
