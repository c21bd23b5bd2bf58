// Who writes (or reads) which bytes: contiguous extents of the data files, cut on multiples of a block.
//
// The selected byte ranges of all files, in file order, are assigned to the aggregators in equal contiguous shares;
// cuts fall on multiples of `block_bytes` of a file (the checksum block), so that no two aggregators touch one block.
// Each group of files is assigned by itself. Every rank computes the same map from the same few numbers; nothing is
// communicated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "format/stored_checkpoint.hpp"
#include "plan/stored_tensors.hpp"

namespace cairn::plan {

/// A contiguous byte range [begin, end) of a file with one aggregator (rank).
struct Extent {
  std::uint32_t file = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  int rank = 0;

  friend bool operator==(const Extent&, const Extent&) = default;
};

/// A byte range of a file that takes part.
struct FileRange {
  std::uint32_t file = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  friend bool operator==(const FileRange&, const FileRange&) = default;
};

/// Who gets what, where that is not "ranks 0 to aggregators - 1, all files together".
struct Assignment {
  /// Rank of each aggregator, ascending; empty: aggregator i is rank i.
  std::vector<int> ranks;
  /// Group of each file, ascending; empty: one group. With a group per section, the ranks of a pipeline stage write the
  /// layers of that stage in every section, and most bytes stay on their node.
  std::vector<std::uint32_t> group_of_file;
  /// Each file goes to one aggregator, who gets the files whose middle lies in its equal share of all bytes; groups do
  /// not count. For file systems that let only one writer at a time into a file.
  bool one_aggregator_per_file = false;
  /// Of each file the aggregator that gets all of it; empty: the shares decide. For files that not every rank sees.
  std::vector<int> aggregator_of_file = {};

  [[nodiscard]] bool is_by_file() const { return one_aggregator_per_file || !aggregator_of_file.empty(); }
};

class ExtentMap {
 public:
  /// `ranges`: ascending by (file, begin), disjoint; begins need not be multiples of a block but two ranges never share
  /// a block of a file (widen_to_blocks sees to that). `aggregators`: at least 1.
  ExtentMap(std::vector<FileRange> ranges, int aggregators, std::uint64_t block_bytes, Assignment assignment = {});
  /// The same, where many maps have one assignment.
  ExtentMap(std::vector<FileRange> ranges, int aggregators, std::uint64_t block_bytes,
            std::shared_ptr<const Assignment> assignment);

  [[nodiscard]] int aggregators() const { return aggregators_; }
  /// One more than the highest rank of an aggregator.
  [[nodiscard]] int ranks() const { return assignment_->ranks.empty() ? aggregators_ : assignment_->ranks.back() + 1; }
  [[nodiscard]] std::uint64_t block_bytes() const { return block_bytes_; }
  [[nodiscard]] std::uint64_t total_bytes() const { return total_bytes_; }

  /// Extents of one rank, ascending by (file, begin). May be empty.
  [[nodiscard]] std::vector<Extent> of(int rank) const;

  /// Extents (of any rank) that meet [begin, end) of a file, clipped to it, ascending. O(log + output).
  [[nodiscard]] std::vector<Extent> covering(std::uint32_t file, std::uint64_t begin, std::uint64_t end) const;

  /// Lowest and highest rank with bytes in the file (first > last when none); every aggregator between them has some
  /// too.
  struct AggregatorRange {
    int first = 0;
    int last = -1;

    friend bool operator==(const AggregatorRange&, const AggregatorRange&) = default;
  };
  [[nodiscard]] AggregatorRange aggregators_of_file(std::uint32_t file) const;
  /// Files with bytes that take part, ascending.
  [[nodiscard]] std::vector<std::uint32_t> files() const;

 private:
  struct Group {
    std::size_t end_range = 0;  ///< one past its last range
    std::uint64_t blocks = 0;
    unsigned aggregators = 0;  ///< that have some of it
    int first_aggregator = 0;
  };
  class Shares;
  void assign_groups();
  [[nodiscard]] int rank_of(int aggregator) const;
  [[nodiscard]] const Group& group_of_range(std::size_t range) const;

  int aggregators_;
  std::uint64_t block_bytes_;
  std::shared_ptr<const Assignment> assignment_;
  std::uint64_t total_bytes_ = 0;
  std::vector<FileRange> ranges_;
  std::vector<std::uint64_t> range_start_;  // position of each range in its group, in blocks
  std::vector<Group> groups_;
};

/// One extent map, or those of several batches that follow each other; they must outlive it.
class ExtentMaps {
 public:
  ExtentMaps(const ExtentMap& one) : maps_(&one, 1) {}
  explicit ExtentMaps(std::span<const ExtentMap> all) : maps_(all) {}

  [[nodiscard]] std::size_t size() const { return maps_.size(); }
  [[nodiscard]] const ExtentMap& operator[](std::size_t batch) const { return maps_[batch]; }
  /// ExtentMap::aggregators_of_file of each of `files` files, over all of them.
  [[nodiscard]] std::vector<ExtentMap::AggregatorRange> aggregators_of_files(std::uint32_t files) const;
  /// Files of which the rank has bytes in any of them, ascending.
  [[nodiscard]] std::vector<std::uint32_t> files_of(int rank) const;
  [[nodiscard]] std::uint64_t total_bytes() const;

 private:
  std::span<const ExtentMap> maps_;
};

/// A group per run of files of one section, for Assignment. `sections`: of each file; empty where no tensor is in it.
std::vector<std::uint32_t> section_groups(std::span<const std::string_view> sections);
/// The same, from all tensors.
std::vector<std::uint32_t> section_groups(const format::StoredCheckpoint& stored);
std::vector<std::uint32_t> section_groups(const PackedCheckpoint& stored);

/// Whole files as ranges.
std::vector<FileRange> whole_files(std::span<const std::uint64_t> file_sizes);

/// Ranges widened to whole blocks (clipped to the file), sorted and merged.
std::vector<FileRange> widen_to_blocks(std::vector<FileRange> ranges, std::span<const std::uint64_t> file_sizes,
                                       std::uint64_t block_bytes);

/// Splits an aggregator's extents into windows of at most `window_bytes`: window w holds parts of its extents that lie
/// next to each other in its list (it may span files). Cuts inside an extent fall on multiples of the block.
///
/// A part begins in the window's buffer at `offsets[p]`. With blocks of whole pages that is at the same place of a
/// page as in the file, as O_DIRECT wants it; the few bytes between the end of a file and the next part belong to
/// nobody. With other blocks the parts lie end to end.
struct Window {
  std::vector<Extent> parts;
  std::vector<std::uint64_t> offsets;
  std::uint64_t bytes = 0;         ///< of the parts
  std::uint64_t buffer_bytes = 0;  ///< end of the last part in the buffer; at most `window_bytes`
};
std::vector<Window> cut_windows(std::span<const Extent> extents, std::uint64_t window_bytes, std::uint64_t block_bytes);

/// The same for who only looks: calls visit(number of the window, part, its offset in the buffer), in order.
using VisitWindowPart = std::function<void(std::size_t window, const Extent& part, std::uint64_t offset)>;
void for_each_window_part(std::span<const Extent> extents, std::uint64_t window_bytes, std::uint64_t block_bytes,
                          const VisitWindowPart& visit);

// The blocks of a grid over all files: [i * block_bytes, min((i + 1) * block_bytes, size)) of each file, numbered
// through.

class BlockGrid {
 public:
  BlockGrid(std::vector<std::uint64_t> file_sizes, std::uint64_t block_bytes);

  [[nodiscard]] std::size_t blocks() const { return first_.back(); }
  [[nodiscard]] std::uint64_t block_bytes() const { return block_bytes_; }
  [[nodiscard]] std::uint32_t files() const { return static_cast<std::uint32_t>(file_sizes_.size()); }
  /// Of a file; block_of(file, 0) for a file without bytes is the first block of the next one.
  [[nodiscard]] std::size_t block_of(std::uint32_t file, std::uint64_t offset) const {
    return first_[file] + offset / block_bytes_;
  }
  [[nodiscard]] std::size_t end_of(std::uint32_t file) const { return first_[file + 1]; }
  /// Requires: the block is one of the file.
  [[nodiscard]] FileRange range_of(std::uint32_t file, std::size_t block) const;

 private:
  std::vector<std::uint64_t> file_sizes_;
  std::uint64_t block_bytes_;
  std::vector<std::size_t> first_;  ///< block of each file, and their number
};

/// Some of the blocks of a grid, which must outlive it.
class BlockSet {
 public:
  explicit BlockSet(const BlockGrid& grid) : grid_(&grid), words_((grid.blocks() + 63) / 64, 0) {}

  [[nodiscard]] bool contains(std::size_t block) const { return (words_[block / 64] >> block % 64 & 1) != 0; }
  void insert(std::size_t block) { words_[block / 64] |= 1ULL << block % 64; }
  /// All blocks that meet the range.
  void insert(const FileRange& range);
  [[nodiscard]] std::size_t count() const;
  /// Adds the blocks of `others`, a set of the same grid: what the reduction over ranks does.
  void add(const BlockSet& others);
  /// Takes them out.
  void remove(const BlockSet& others);

  /// For a reduction over ranks.
  [[nodiscard]] std::span<std::uint64_t> words() { return words_; }
  /// Ascending; neighbouring blocks of a file are one range.
  [[nodiscard]] std::vector<FileRange> ranges() const;

 private:
  /// The first block from `block` on that is in the set, or is not; `end` where there is none before it.
  [[nodiscard]] std::size_t first_from(std::size_t block, std::size_t end, bool is_in) const;

  const BlockGrid* grid_;
  std::vector<std::uint64_t> words_;
};

}  // namespace cairn::plan
