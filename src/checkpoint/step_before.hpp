// The step before, as the checksums of its blocks: which sections are still as they were there?
//
// Every rank knows the whole block table of what it saves or opens for a moment, and keeps the checksums of its share
// until the next save: 4 bytes for each of its blocks, a megabyte of a 1 TB checkpoint for all ranks together. Whose a
// block is depends on its file's name and its number alone, so that it stays with its rank when other files come and
// go.
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

  /// Nothing is known of it.
  StepBefore() = default;
  StepBefore(std::uint64_t step, const format::BlockTable& table, Share share);
  StepBefore(std::uint64_t step, const format::BlockRows& rows, Share share);

  /// Something can be compared with it: it is known, and has such blocks.
  [[nodiscard]] bool has_blocks_of(std::uint64_t block_bytes) const { return block_bytes_ == block_bytes; }
  [[nodiscard]] std::uint64_t step() const { return step_; }
  /// Of this rank's share of the file, which has the same blocks.
  [[nodiscard]] Unchanged unchanged_of(const format::FileBlocks& file) const;

 private:
  struct File {
    std::uint64_t size_bytes = 0;
    std::vector<std::uint32_t> crcs;  ///< of its share, ascending
  };
  template <class Table>
  void keep_share(const Table& files);

  std::uint64_t step_ = 0;
  std::uint64_t block_bytes_ = 0;  ///< 0: nothing is known
  Share share_;
  std::unordered_map<std::uint64_t, File> files_;  ///< by a hash of the name
};

/// Collective. How much of each section of `table`, which has the files of `layout`, is as it was; the same on all
/// ranks. Requires: before.has_blocks_of(table.block_bytes).
std::vector<SectionChange> changes_since(comm::Communicator& communicator, const StepBefore& before,
                                         const plan::FileLayout& layout, const format::BlockTable& table);

/// What is said of those of `sections` of which nothing has changed; "" when there are none.
std::string stale_words(const std::vector<SectionChange>& changes, const std::vector<std::string>& sections,
                        std::uint64_t step_before);

}  // namespace cairn::checkpoint
