// Who writes (or reads) which bytes: contiguous extents of the data files, cut on multiples of a grain.
//
// The selected byte ranges of all files, in file order, are dealt to the workers in equal contiguous shares; cuts fall
// on multiples of `grain_bytes` of a file (the checksum block), so that no two workers touch one block. Each group of
// files is dealt by itself. Every rank computes the same map from the same few numbers; nothing is communicated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "format/stored_checkpoint.hpp"

namespace cairn::plan {

/// A contiguous byte range [begin, end) of a file with one worker (rank).
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

/// Who gets what, where that is not "ranks 0 to workers - 1, all files together".
struct Deal {
  /// Rank of each worker, ascending; empty: worker i is rank i.
  std::vector<int> ranks;
  /// Group of each file, ascending; empty: one group. With a group per section, the ranks of a pipeline stage write the
  /// layers of that stage in every section, and most bytes stay on their node.
  std::vector<std::uint32_t> group_of_file;
  /// Each file goes to one worker, who gets the files whose middle lies in its equal share of all bytes; groups do not
  /// count. For file systems that let only one writer at a time into a file.
  bool one_worker_per_file = false;
};

class ExtentMap {
 public:
  /// `ranges`: ascending by (file, begin), disjoint; begins need not be grain multiples but two ranges never share a
  /// grain cell of a file (widen_to_grain sees to that). `workers`: at least 1.
  ExtentMap(std::vector<FileRange> ranges, int workers, std::uint64_t grain_bytes, Deal deal = {});

  [[nodiscard]] int workers() const { return workers_; }
  /// One more than the highest rank of a worker.
  [[nodiscard]] int ranks() const { return deal_.ranks.empty() ? workers_ : deal_.ranks.back() + 1; }
  [[nodiscard]] std::uint64_t grain_bytes() const { return grain_bytes_; }
  [[nodiscard]] std::uint64_t total_bytes() const { return total_bytes_; }

  /// Extents of one rank, ascending by (file, begin). May be empty.
  [[nodiscard]] std::vector<Extent> of(int rank) const;

  /// Extents (of any rank) that meet [begin, end) of a file, clipped to it, ascending. O(log + output).
  [[nodiscard]] std::vector<Extent> covering(std::uint32_t file, std::uint64_t begin, std::uint64_t end) const;

  /// Lowest and highest rank with bytes in the file (first > last when none); every worker between them has some too.
  struct WorkerRange {
    int first = 0;
    int last = -1;
  };
  [[nodiscard]] WorkerRange workers_of_file(std::uint32_t file) const;

 private:
  struct Group {
    std::size_t end_range = 0;  ///< one past its last range
    std::uint64_t cells = 0;
    unsigned workers = 0;  ///< that have some of it
    int first_worker = 0;
  };
  class Shares;
  void deal_groups();
  [[nodiscard]] int rank_of(int worker) const;
  [[nodiscard]] const Group& group_of_range(std::size_t range) const;

  int workers_;
  std::uint64_t grain_bytes_;
  Deal deal_;
  std::uint64_t total_bytes_ = 0;
  std::vector<FileRange> ranges_;
  std::vector<std::uint64_t> range_start_;  // position of each range in its group, in grain cells
  std::vector<Group> groups_;
};

/// A group per run of files of one section, for Deal.
std::vector<std::uint32_t> section_groups(const format::StoredCheckpoint& stored);

/// Whole files as ranges.
std::vector<FileRange> whole_files(std::span<const std::uint64_t> file_sizes);

/// Ranges widened to whole grain cells (clipped to the file), sorted and merged.
std::vector<FileRange> widen_to_grain(std::vector<FileRange> ranges, std::span<const std::uint64_t> file_sizes,
                                      std::uint64_t grain_bytes);

/// Splits a worker's extents into windows of at most `window_bytes`: window w holds parts of its extents that lie next
/// to each other in its list (it may span files). Cuts inside an extent fall on multiples of the grain.
///
/// A part begins in the window's buffer at `offsets[p]`. With a grain of whole pages that is at the same place of a
/// page as in the file, as O_DIRECT wants it; the few bytes between the end of a file and the next part belong to
/// nobody. With another grain the parts lie end to end.
struct Window {
  std::vector<Extent> parts;
  std::vector<std::uint64_t> offsets;
  std::uint64_t bytes = 0;         ///< of the parts
  std::uint64_t buffer_bytes = 0;  ///< end of the last part in the buffer; at most `window_bytes`
};
std::vector<Window> cut_windows(std::span<const Extent> extents, std::uint64_t window_bytes, std::uint64_t grain_bytes);

/// The same for who only looks: calls visit(number of the window, part, its offset in the buffer), in order.
using VisitWindowPart = std::function<void(std::size_t window, const Extent& part, std::uint64_t offset)>;
void for_each_window_part(std::span<const Extent> extents, std::uint64_t window_bytes, std::uint64_t grain_bytes,
                          const VisitWindowPart& visit);

// The cells of a grid over all files: [i * grain, min((i + 1) * grain, size)) of each file, numbered through.

class CellGrid {
 public:
  CellGrid(std::vector<std::uint64_t> file_sizes, std::uint64_t grain_bytes);

  [[nodiscard]] std::size_t cells() const { return first_.back(); }
  [[nodiscard]] std::uint64_t grain_bytes() const { return grain_bytes_; }
  [[nodiscard]] std::uint32_t files() const { return static_cast<std::uint32_t>(file_sizes_.size()); }
  /// Of a file; cell_of(file, 0) for a file without bytes is the first cell of the next one.
  [[nodiscard]] std::size_t cell_of(std::uint32_t file, std::uint64_t offset) const {
    return first_[file] + offset / grain_bytes_;
  }
  [[nodiscard]] std::size_t end_of(std::uint32_t file) const { return first_[file + 1]; }
  /// Requires: the cell is one of the file.
  [[nodiscard]] FileRange range_of(std::uint32_t file, std::size_t cell) const;

 private:
  std::vector<std::uint64_t> file_sizes_;
  std::uint64_t grain_bytes_;
  std::vector<std::size_t> first_;  ///< cell of each file, and their number
};

/// Some of the cells of a grid, which must outlive it.
class CellSet {
 public:
  explicit CellSet(const CellGrid& grid) : grid_(&grid), words_((grid.cells() + 63) / 64, 0) {}

  [[nodiscard]] bool contains(std::size_t cell) const { return (words_[cell / 64] >> cell % 64 & 1) != 0; }
  void insert(std::size_t cell) { words_[cell / 64] |= 1ULL << cell % 64; }
  /// All cells that meet the range.
  void insert(const FileRange& range);
  [[nodiscard]] std::size_t count() const;
  /// Takes the cells of `others`, a set of the same grid, out.
  void remove(const CellSet& others);

  /// For a reduction over ranks.
  [[nodiscard]] std::span<std::uint64_t> words() { return words_; }
  /// Ascending; neighbouring cells of a file are one range.
  [[nodiscard]] std::vector<FileRange> ranges() const;

 private:
  const CellGrid* grid_;
  std::vector<std::uint64_t> words_;
};

}  // namespace cairn::plan
