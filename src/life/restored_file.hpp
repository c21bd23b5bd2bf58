// A damaged data file of a checkpoint, and the good blocks from which it can be written anew.
//
// A block from elsewhere is taken when
//   - it lies at the same place of a file of the same name and size, on another inode,
//   - that file has the same header, so that the place belongs to the same tensor, dtype and shape,
//   - a valid cairn.blocks there has the checksum of the damaged block for it, and so have its bytes.
// Pure reading: nothing here writes, except restore() into the file that it is given. Rank-local.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "format/blocks.hpp"
#include "io/disk_reader.hpp"
#include "os/file.hpp"

namespace cairn::life {

/// The size of each block in turn: the last one may be shorter.
std::uint64_t bytes_of_block(const format::FileBlocks& file, std::uint64_t block_bytes, std::uint64_t block);

/// The blocks of the file at `path` that are missing, cannot be read or do not have their checksums; ascending. Reads
/// past the page cache. Throws for an error that may pass (os/errno_class.hpp).
std::vector<std::uint64_t> bad_blocks(const std::filesystem::path& path, const format::FileBlocks& file,
                                      std::uint64_t block_bytes, io::DiskReader& reader);

/// A data file that is not as it was written.
class DamagedFile {
 public:
  /// `file` and the table's block size must outlive the object; `bad`: result of bad_blocks().
  DamagedFile(std::filesystem::path path, const format::FileBlocks& file, std::uint64_t block_bytes,
              std::vector<std::uint64_t> bad, std::string problem);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const format::FileBlocks& file() const { return file_; }
  [[nodiscard]] const std::vector<std::uint64_t>& bad() const { return bad_; }
  /// "is missing", "2 of 12 blocks are damaged" and the like.
  [[nodiscard]] const std::string& problem() const { return problem_; }

  /// Adds the directory of another checkpoint, whose valid block table is `table`, if it may have good blocks.
  void consider(const std::filesystem::path& directory, const format::BlockRows& table);
  /// Looks for all bad blocks in the directories that were considered, in their order, and reads those that are found.
  void find();

  /// After find(): the bad blocks that were found nowhere.
  [[nodiscard]] std::vector<std::uint64_t> lost() const;
  /// After find(): the directories from which blocks would be taken.
  [[nodiscard]] std::vector<std::filesystem::path> used() const;
  /// After find(): where the good bytes of a bad block are; nothing if nowhere.
  [[nodiscard]] std::optional<std::filesystem::path> place_of(std::uint64_t block) const;
  [[nodiscard]] std::uint64_t bad_bytes() const;
  /// After find(): names of the tensors with bytes in the block, as far as the header is known.
  [[nodiscard]] std::vector<std::string> tensors_of(std::uint64_t block) const;

  /// Writes the whole file from its good blocks and those that were found. Requires: lost() is empty. Throws
  /// kIntegrity if a block has changed since.
  void restore(os::File& out) const;

 private:
  struct Candidate {
    std::filesystem::path directory;
    std::vector<std::uint64_t> blocks;  ///< bad blocks for which it has the checksum; ascending
    bool has_other_header = false;
  };
  bool read_own(std::uint64_t block, base::Bytes& into) const;
  bool read_from(const Candidate& candidate, std::uint64_t block, base::Bytes& into) const;
  bool read_good(std::uint64_t block, base::Bytes& into);
  bool find_block(std::uint64_t block, base::Bytes& into);
  void find_header();
  [[nodiscard]] bool has_same_header(const Candidate& candidate) const;
  [[nodiscard]] std::optional<std::size_t> index_of_bad(std::uint64_t block) const;

  std::filesystem::path path_;
  const format::FileBlocks& file_;
  std::uint64_t block_bytes_;
  std::vector<std::uint64_t> bad_;
  std::string problem_;
  std::vector<Candidate> candidates_;
  std::vector<std::optional<std::size_t>> found_;  ///< for each bad block: its candidate
  std::string header_;                             ///< prefix and JSON; empty: unknown
};

}  // namespace cairn::life
