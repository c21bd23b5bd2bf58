// Extents: contiguous parts of the data files, cut at multiples of a block, each written or read by one rank.
//
// The selected byte ranges of all files, in file order, are assigned to the aggregators in equal contiguous shares.
// Cuts fall on multiples of `block_bytes` of a file (the checksum block), so no two aggregators touch one block. Each
// group of files is assigned separately. Every rank computes the same map from the same few numbers, without
// communication.
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

/// A byte range of a file that is written or read.
struct FileRange {
  std::uint32_t file = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  friend bool operator==(const FileRange&, const FileRange&) = default;
};

/// Assignment of files to ranks. Default: ranks 0 to aggregators - 1, all files together.
struct Assignment {
  /// Rank of each aggregator, ascending; empty: aggregator i is rank i.
  std::vector<int> ranks;
  /// Group of each file, ascending; empty: one group. With a group per section, the ranks of a pipeline stage write the
  /// layers of that stage in every section, and most bytes stay on their nodes.
  std::vector<std::uint32_t> group_of_file;
  /// Assigns each whole file to the aggregator whose equal share of all blocks contains the middle of the file;
  /// groups are ignored. For file systems that let only one writer at a time into a file.
  bool one_aggregator_per_file = false;
  /// The aggregator of each whole file, for files that not every rank sees; empty: the shares decide.
  std::vector<int> aggregator_of_file = {};

  [[nodiscard]] bool is_by_file() const { return one_aggregator_per_file || !aggregator_of_file.empty(); }
};

class ExtentMap {
 public:
  /// `ranges`: ascending by (file, begin) and disjoint. They need not begin at multiples of a block, but no two ranges
  /// may share a block (widen_to_blocks() merges such ranges). `aggregators`: at least 1. Throws Error(kInternal)
  /// otherwise.
  ExtentMap(std::vector<FileRange> ranges, int aggregators, std::uint64_t block_bytes, Assignment assignment = {});
  /// As above, for many maps that share one assignment.
  ExtentMap(std::vector<FileRange> ranges, int aggregators, std::uint64_t block_bytes,
            std::shared_ptr<const Assignment> assignment);

  [[nodiscard]] int aggregators() const { return aggregators_; }
  /// One more than the highest rank of an aggregator.
  [[nodiscard]] int ranks() const { return assignment_->ranks.empty() ? aggregators_ : assignment_->ranks.back() + 1; }
  [[nodiscard]] std::uint64_t block_bytes() const { return block_bytes_; }
  [[nodiscard]] std::uint64_t total_bytes() const { return total_bytes_; }

  /// Extents of one rank, ascending by (file, begin). May be empty.
  [[nodiscard]] std::vector<Extent> of(int rank) const;

  /// Extents (of any rank) that overlap [begin, end) of a file, clipped to this range, ascending. O(log + output).
  [[nodiscard]] std::vector<Extent> covering(std::uint32_t file, std::uint64_t begin, std::uint64_t end) const;

  /// Lowest and highest rank with bytes in the file (first > last if there are none). In a single map, all aggregators
  /// between these two also have bytes of the file.
  struct AggregatorRange {
    int first = 0;
    int last = -1;

    friend bool operator==(const AggregatorRange&, const AggregatorRange&) = default;
  };
  [[nodiscard]] AggregatorRange aggregators_of_file(std::uint32_t file) const;
  /// Files with bytes in the map, ascending.
  [[nodiscard]] std::vector<std::uint32_t> files() const;

 private:
  struct Group {
    std::size_t end_range = 0;  ///< one past the group's last range
    std::uint64_t blocks = 0;
    unsigned aggregators = 0;  ///< number of aggregators with blocks of the group
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

/// A view of one extent map, or of the maps of consecutive batches; the maps must outlive it.
class ExtentMaps {
 public:
  ExtentMaps(const ExtentMap& one) : maps_(&one, 1) {}
  explicit ExtentMaps(std::span<const ExtentMap> all) : maps_(all) {}

  [[nodiscard]] std::size_t size() const { return maps_.size(); }
  [[nodiscard]] const ExtentMap& operator[](std::size_t batch) const { return maps_[batch]; }
  /// For files 0 to `files` - 1: the smallest range that contains the file's aggregators in all maps.
  [[nodiscard]] std::vector<ExtentMap::AggregatorRange> aggregators_of_files(std::uint32_t files) const;
  /// Files with bytes of the rank in any map, ascending.
  [[nodiscard]] std::vector<std::uint32_t> files_of(int rank) const;
  [[nodiscard]] std::uint64_t total_bytes() const;

 private:
  std::span<const ExtentMap> maps_;
};

/// Assignment::group_of_file: consecutive files of one section are a group. `sections`: by file; "": no tensors.
std::vector<std::uint32_t> section_groups(std::span<const std::string_view> sections);
/// section_groups() with the sections of the stored tensors.
std::vector<std::uint32_t> section_groups(const format::StoredCheckpoint& stored);
std::vector<std::uint32_t> section_groups(const PackedCheckpoint& stored);

/// Whole files as ranges.
std::vector<FileRange> whole_files(std::span<const std::uint64_t> file_sizes);

/// Ranges widened to whole blocks (clipped to the file), sorted, merged. Throws Error(kInternal) for one outside its
/// file.
std::vector<FileRange> widen_to_blocks(std::vector<FileRange> ranges, std::span<const std::uint64_t> file_sizes,
                                       std::uint64_t block_bytes);

/// A window: consecutive parts of an aggregator's extents that together fit into a buffer. A window may span files.
///
/// Part p begins at `offsets[p]` in the buffer. With blocks of whole pages, a part has the same offset within a page in
/// the buffer as in the file, as O_DIRECT requires; the few bytes between the end of a file and the next part are
/// unused. With other blocks the parts lie end to end.
struct Window {
  std::vector<Extent> parts;
  std::vector<std::uint64_t> offsets;
  std::uint64_t bytes = 0;         ///< bytes of the parts
  std::uint64_t buffer_bytes = 0;  ///< end of the last part in the buffer; at most cut_windows()'s window_bytes
};
/// Splits an aggregator's extents into windows of at most `window_bytes`. Cuts inside an extent fall on multiples of
/// the block. Throws Error(kUsage) if a window cannot hold a block.
std::vector<Window> cut_windows(std::span<const Extent> extents, std::uint64_t window_bytes, std::uint64_t block_bytes);

/// As cut_windows(), without building the list: calls visit(window number, part, its offset in the buffer) in order.
using VisitWindowPart = std::function<void(std::size_t window, const Extent& part, std::uint64_t offset)>;
void for_each_window_part(std::span<const Extent> extents, std::uint64_t window_bytes, std::uint64_t block_bytes,
                          const VisitWindowPart& visit);

/// The blocks of all files, numbered consecutively: [i * block_bytes, min((i + 1) * block_bytes, size)) of each file.
class BlockGrid {
 public:
  BlockGrid(std::vector<std::uint64_t> file_sizes, std::uint64_t block_bytes);

  [[nodiscard]] std::size_t blocks() const { return first_.back(); }
  [[nodiscard]] std::uint64_t block_bytes() const { return block_bytes_; }
  [[nodiscard]] std::uint32_t files() const { return static_cast<std::uint32_t>(file_sizes_.size()); }
  /// The block at an offset of a file. For an empty file, block_of(file, 0) equals end_of(file).
  [[nodiscard]] std::size_t block_of(std::uint32_t file, std::uint64_t offset) const {
    return first_[file] + offset / block_bytes_;
  }
  [[nodiscard]] std::size_t end_of(std::uint32_t file) const { return first_[file + 1]; }
  /// Requires: the block belongs to the file.
  [[nodiscard]] FileRange range_of(std::uint32_t file, std::size_t block) const;

 private:
  std::vector<std::uint64_t> file_sizes_;
  std::uint64_t block_bytes_;
  std::vector<std::size_t> first_;  ///< first block of each file, then the number of blocks
};

/// A set of blocks of a grid. The grid must outlive the set.
class BlockSet {
 public:
  explicit BlockSet(const BlockGrid& grid) : grid_(&grid), words_((grid.blocks() + 63) / 64, 0) {}

  [[nodiscard]] bool contains(std::size_t block) const { return (words_[block / 64] >> block % 64 & 1) != 0; }
  void insert(std::size_t block) { words_[block / 64] |= 1ULL << block % 64; }
  /// Inserts all blocks that the range overlaps.
  void insert(const FileRange& range);
  [[nodiscard]] std::size_t count() const;
  /// Adds the blocks of `others`, a set of the same grid, as the reduction over ranks does.
  void add(const BlockSet& others);
  /// Removes the blocks of `others`.
  void remove(const BlockSet& others);

  /// The bits, for a reduction over ranks.
  [[nodiscard]] std::span<std::uint64_t> words() { return words_; }
  /// The blocks as ascending ranges; neighbouring blocks of a file form one range.
  [[nodiscard]] std::vector<FileRange> ranges() const;

 private:
  /// The first block from `block` on that is in the set (or, if is_in is false, not in it); `end` if there is none.
  [[nodiscard]] std::size_t first_from(std::size_t block, std::size_t end, bool is_in) const;

  const BlockGrid* grid_;
  std::vector<std::uint64_t> words_;
};

}  // namespace cairn::plan
