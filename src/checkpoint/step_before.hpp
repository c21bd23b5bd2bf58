// The block checksums of the previous step, to find sections that have not changed since that step.
//
// Every rank sees the whole block table of a save or load for a moment, and keeps the checksums of its share until the
// next save: 4 bytes for each block, a megabyte on all ranks together for 1 TB in 4 MiB blocks. The rank that keeps a
// block's checksum depends only on the file's name and the block's number, whatever other files exist.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cairn/checks.hpp"
#include "comm/communicator.hpp"
#include "format/blocks.hpp"
#include "plan/file_layout.hpp"

namespace cairn::checkpoint {

class StepBefore {
 public:
  struct Share {
    int rank = 0;
    int ranks = 1;
  };
  struct Unchanged {
    std::uint64_t bytes = 0;
    std::uint64_t blocks = 0;
  };

  /// An unknown step.
  StepBefore() = default;
  StepBefore(std::uint64_t step, const format::BlockTable& table, Share share);
  StepBefore(std::uint64_t step, const format::BlockRows& rows, Share share);

  /// Whether a comparison is possible: the step is known, and has blocks of `block_bytes`, which must not be 0.
  [[nodiscard]] bool has_blocks_of(std::uint64_t block_bytes) const { return block_bytes_ == block_bytes; }
  [[nodiscard]] std::uint64_t step() const { return step_; }
  /// The unchanged blocks in this rank's share of the file. Requires: has_blocks_of(block size of the file).
  [[nodiscard]] Unchanged unchanged_of(const format::FileBlocks& file) const;

 private:
  struct File {
    std::uint64_t size_bytes = 0;
    std::vector<std::uint32_t> crcs;  ///< checksums of this rank's blocks, by ascending block
  };
  template <class Table>
  void keep_share(const Table& files);

  std::uint64_t step_ = 0;
  std::uint64_t block_bytes_ = 0;  ///< 0: the step is unknown
  Share share_;
  std::unordered_map<std::uint64_t, File> files_;  ///< by a hash of the name
};

/// Collective. The unchanged bytes and blocks of each section of `table`, which has the files of `layout`; the same on
/// all ranks. Requires: before.has_blocks_of(table.block_bytes).
std::vector<SectionChange> changes_since(comm::Communicator& communicator, const StepBefore& before,
                                         const plan::FileLayout& layout, const format::BlockTable& table);

/// A warning about those of `sections` in which no byte has changed; "" if there are none.
std::string stale_words(const std::vector<SectionChange>& changes, const std::vector<std::string>& sections,
                        std::uint64_t step_before);

}  // namespace cairn::checkpoint
