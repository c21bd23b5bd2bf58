// The extent map: in each group, shares are equal numbers of grain cells, so a worker of a cell and the cells of a
// worker are one division each; the only memory is one position per range.
#include "plan/extents.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/checked.hpp"
#include "cairn/error.hpp"

namespace cairn::plan {
namespace {

__extension__ using Wide = unsigned __int128;

std::uint64_t first_cell_of(const FileRange& range, std::uint64_t grain) { return range.begin / grain; }

std::uint64_t cells_of(const FileRange& range, std::uint64_t grain) {
  return base::ceil_div(range.end, grain) - range.begin / grain;
}

/// Bytes of the cells [begin, end) of a range, counted from the range's own first cell.
Extent extent_of_cells(const FileRange& range, std::uint64_t begin, std::uint64_t end, std::uint64_t grain) {
  const std::uint64_t first = first_cell_of(range, grain);
  Extent extent;
  extent.file = range.file;
  extent.begin = begin == 0 ? range.begin : (first + begin) * grain;
  extent.end = end == cells_of(range, grain) ? range.end : (first + end) * grain;
  return extent;
}

void check_ranges(const std::vector<FileRange>& ranges, std::uint64_t grain) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const FileRange& range = ranges[i];
    if (range.end <= range.begin) {
      throw Error(ErrorKind::kInternal, fmt::format("extent map: range [{}, {}) of file {} ends before it begins",
                                                    range.begin, range.end, range.file));
    }
    if (i == 0) continue;
    const FileRange& before = ranges[i - 1];
    const bool ascending = before.file < range.file ||
                           (before.file == range.file && base::ceil_div(before.end, grain) <= range.begin / grain);
    if (!ascending) {
      throw Error(ErrorKind::kInternal,
                  fmt::format("extent map: range [{}, {}) of file {} and range [{}, {}) of file {} are out of order or "
                              "share a cell of {} bytes; widen_to_grain merges such ranges",
                              before.begin, before.end, before.file, range.begin, range.end, range.file, grain));
    }
  }
}

}  // namespace

/// Worker w of n has the cells from w * cells / n on: shares differ by one cell at most, and the larger ones are spread
/// over the workers, so that they do not add up over the groups.
class ExtentMap::Shares {
 public:
  explicit Shares(const Group& group) : cells_(group.cells), workers_(group.workers), first_(group.first_worker) {}
  [[nodiscard]] std::uint64_t first_cell(int worker) const {
    if (worker <= first_) return 0;
    const auto w = static_cast<unsigned>(worker - first_);
    return w >= workers_ ? cells_ : static_cast<std::uint64_t>(static_cast<Wide>(w) * cells_ / workers_);
  }
  [[nodiscard]] int worker_of(std::uint64_t cell) const {
    return first_ + static_cast<int>(((static_cast<Wide>(cell) + 1) * workers_ - 1) / cells_);
  }

 private:
  std::uint64_t cells_;
  unsigned workers_;
  int first_;
};

ExtentMap::ExtentMap(std::vector<FileRange> ranges, int workers, std::uint64_t grain_bytes, Deal deal)
    : workers_(workers), grain_bytes_(grain_bytes), deal_(std::move(deal)), ranges_(std::move(ranges)) {
  if (workers_ < 1 || grain_bytes_ == 0) {
    throw Error(
        ErrorKind::kInternal,
        fmt::format("extent map: {} workers and a grain of {} bytes; both must be at least 1", workers_, grain_bytes_));
  }
  const bool ranks_fit = deal_.ranks.empty() || (deal_.ranks.size() == static_cast<std::size_t>(workers_) &&
                                                 std::is_sorted(deal_.ranks.begin(), deal_.ranks.end()));
  if (!ranks_fit || !std::is_sorted(deal_.group_of_file.begin(), deal_.group_of_file.end())) {
    throw Error(ErrorKind::kInternal, "extent map: ranks of workers or groups of files do not ascend");
  }
  std::erase_if(ranges_, [](const FileRange& range) { return range.begin == range.end; });
  check_ranges(ranges_, grain_bytes_);
  range_start_.reserve(ranges_.size());
  const auto group_of = [&](const FileRange& range) {
    if (deal_.one_worker_per_file) return range.file;
    return deal_.group_of_file.empty() ? 0 : deal_.group_of_file.at(range.file);
  };
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    if (i == 0 || group_of(ranges_[i]) != group_of(ranges_[i - 1])) groups_.emplace_back();
    Group& group = groups_.back();
    range_start_.push_back(group.cells);
    group.end_range = i + 1;
    group.cells = base::add(group.cells, cells_of(ranges_[i], grain_bytes_), "extent map cells");
    total_bytes_ = base::add(total_bytes_, ranges_[i].end - ranges_[i].begin, "extent map bytes");
  }
  deal_groups();
}

/// Fewer cells than workers go to consecutive workers, from where the cells of the groups before would lead on, so that
/// small groups do not all meet at the first.
void ExtentMap::deal_groups() {
  std::uint64_t all_cells = 0;
  for (const Group& group : groups_) all_cells = base::add(all_cells, group.cells, "extent map cells");
  const auto all = static_cast<std::uint64_t>(workers_);
  std::uint64_t before = 0;
  for (Group& group : groups_) {
    if (deal_.one_worker_per_file) {
      group.workers = 1;
      group.first_worker = static_cast<int>(static_cast<Wide>(before + group.cells / 2) * all / all_cells);
    } else {
      group.workers = static_cast<unsigned>(std::min(group.cells, all));
      group.first_worker = static_cast<int>(std::min(before % all, all - group.workers));
    }
    before += group.cells;
  }
}

int ExtentMap::rank_of(int worker) const {
  return deal_.ranks.empty() ? worker : deal_.ranks[static_cast<std::size_t>(worker)];
}

const ExtentMap::Group& ExtentMap::group_of_range(std::size_t range) const {
  return *std::partition_point(groups_.begin(), groups_.end(), [&](const Group& g) { return g.end_range <= range; });
}

std::vector<Extent> ExtentMap::of(int rank) const {
  std::vector<Extent> out;
  int worker = rank;
  if (!deal_.ranks.empty()) {
    const auto found = std::lower_bound(deal_.ranks.begin(), deal_.ranks.end(), rank);
    if (found == deal_.ranks.end() || *found != rank) return out;
    worker = static_cast<int>(found - deal_.ranks.begin());
  }
  if (worker < 0 || worker >= workers_) return out;
  std::size_t first_range = 0;
  for (const Group& group : groups_) {
    const Shares shares(group);
    const std::uint64_t begin = shares.first_cell(worker);
    const std::uint64_t end = shares.first_cell(worker + 1);
    const auto starts = range_start_.begin();
    const auto after = std::upper_bound(starts + static_cast<std::ptrdiff_t>(first_range),
                                        starts + static_cast<std::ptrdiff_t>(group.end_range), begin);
    for (auto i = static_cast<std::size_t>(after - starts) - 1; begin < end && i < group.end_range; ++i) {
      const std::uint64_t start = range_start_[i];
      if (start >= end) break;
      const std::uint64_t stop = std::min(end, start + cells_of(ranges_[i], grain_bytes_));
      Extent extent = extent_of_cells(ranges_[i], std::max(begin, start) - start, stop - start, grain_bytes_);
      extent.rank = rank;
      out.push_back(extent);
    }
    first_range = group.end_range;
  }
  return out;
}

std::vector<Extent> ExtentMap::covering(std::uint32_t file, std::uint64_t begin, std::uint64_t end) const {
  std::vector<Extent> out;
  if (begin >= end) return out;
  auto range = std::partition_point(ranges_.begin(), ranges_.end(), [&](const FileRange& r) {
    return r.file < file || (r.file == file && r.end <= begin);
  });
  for (; range != ranges_.end() && range->file == file && range->begin < end; ++range) {
    const auto number = static_cast<std::size_t>(range - ranges_.begin());
    const Group& group = group_of_range(number);
    const Shares shares(group);
    const std::uint64_t low = std::max(begin, range->begin);
    const std::uint64_t high = std::min(end, range->end);
    const std::uint64_t start = range_start_[number];
    const std::uint64_t first = first_cell_of(*range, grain_bytes_);
    const int last_worker = shares.worker_of(start + (high - 1) / grain_bytes_ - first);
    for (int worker = shares.worker_of(start + low / grain_bytes_ - first); worker <= last_worker; ++worker) {
      const std::uint64_t from = std::max(shares.first_cell(worker), start) - start;
      const std::uint64_t to = std::min(shares.first_cell(worker + 1), start + cells_of(*range, grain_bytes_)) - start;
      Extent extent = extent_of_cells(*range, from, to, grain_bytes_);
      extent.begin = std::max(extent.begin, low);
      extent.end = std::min(extent.end, high);
      extent.rank = rank_of(worker);
      out.push_back(extent);
    }
  }
  return out;
}

ExtentMap::WorkerRange ExtentMap::workers_of_file(std::uint32_t file) const {
  const auto first =
      std::partition_point(ranges_.begin(), ranges_.end(), [&](const FileRange& r) { return r.file < file; });
  const auto last = std::partition_point(first, ranges_.end(), [&](const FileRange& r) { return r.file == file; });
  if (first == last) return {};
  const auto first_number = static_cast<std::size_t>(first - ranges_.begin());
  const auto end = static_cast<std::size_t>(last - ranges_.begin());
  const Group& group = group_of_range(first_number);
  const Shares shares(group);
  const std::uint64_t last_cell = (end == group.end_range ? group.cells : range_start_[end]) - 1;
  return {rank_of(shares.worker_of(range_start_[first_number])), rank_of(shares.worker_of(last_cell))};
}

std::vector<std::uint32_t> section_groups(const format::StoredCheckpoint& stored) {
  std::vector<const std::string*> section_of_file(stored.files.size(), nullptr);
  for (const auto& tensor : stored.tensors) {
    for (const auto& box : tensor.boxes) section_of_file.at(box.file) = &tensor.section;
  }
  std::vector<std::uint32_t> groups;
  const std::string* section = nullptr;
  std::uint32_t group = 0;
  for (const std::string* of_file : section_of_file) {
    if (section != nullptr && of_file != nullptr && *of_file != *section) ++group;
    if (of_file != nullptr) section = of_file;
    groups.push_back(group);
  }
  return groups;
}

std::vector<FileRange> whole_files(std::span<const std::uint64_t> file_sizes) {
  std::vector<FileRange> out;
  out.reserve(file_sizes.size());
  for (std::size_t i = 0; i < file_sizes.size(); ++i) {
    out.push_back({base::narrow<std::uint32_t>(i, "number of files"), 0, file_sizes[i]});
  }
  return out;
}

std::vector<FileRange> widen_to_grain(std::vector<FileRange> ranges, std::span<const std::uint64_t> file_sizes,
                                      std::uint64_t grain_bytes) {
  std::erase_if(ranges, [](const FileRange& range) { return range.begin == range.end; });
  for (FileRange& range : ranges) {
    if (range.file >= file_sizes.size() || range.begin > range.end || range.end > file_sizes[range.file]) {
      throw Error(ErrorKind::kInternal,
                  fmt::format("range [{}, {}) lies outside file {} of {} bytes", range.begin, range.end, range.file,
                              range.file < file_sizes.size() ? file_sizes[range.file] : 0));
    }
    const std::uint64_t size = file_sizes[range.file];
    const std::uint64_t end_cell = base::ceil_div(range.end, grain_bytes);
    range.begin -= range.begin % grain_bytes;
    range.end = end_cell > size / grain_bytes ? size : end_cell * grain_bytes;
  }
  std::sort(ranges.begin(), ranges.end(), [](const FileRange& a, const FileRange& b) {
    return std::pair(a.file, a.begin) < std::pair(b.file, b.begin);
  });
  std::vector<FileRange> merged;
  for (const FileRange& range : ranges) {
    if (!merged.empty() && merged.back().file == range.file && range.begin <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, range.end);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

// Windows: a worker's extents in pieces that fit its buffer, cut on block boundaries so that no block is in two
// windows, and placed in the buffer on page boundaries.

namespace {

constexpr std::uint64_t kPageBytes = 4096;

/// Where to cut an extent that begins at `begin` when `room` bytes are left: a grain multiple, or `begin` when none
/// fits.
std::uint64_t cut_point(std::uint64_t begin, std::uint64_t room, std::uint64_t grain) {
  const std::uint64_t over = (begin % grain + room % grain) % grain;
  return room < over ? begin : begin + (room - over);
}

}  // namespace

void for_each_window_part(std::span<const Extent> extents, std::uint64_t window_bytes, std::uint64_t grain_bytes,
                          const VisitWindowPart& visit) {
  if (grain_bytes == 0 || window_bytes < grain_bytes) {
    throw Error(ErrorKind::kUsage,
                fmt::format("a window of {} bytes cannot hold a checksum block of {} bytes; give it more "
                            "memory or make the block smaller",
                            window_bytes, grain_bytes));
  }
  const std::uint64_t alignment = grain_bytes % kPageBytes == 0 ? kPageBytes : 1;
  std::size_t window = 0;
  std::uint64_t buffer_bytes = 0;  // of the open window, which has none as long as it has no part
  const auto close = [&] {
    if (buffer_bytes != 0) ++window;
    buffer_bytes = 0;
  };
  for (const Extent& extent : extents) {
    std::uint64_t begin = extent.begin;
    while (begin < extent.end) {
      const std::uint64_t at = base::round_up(buffer_bytes, alignment) + begin % alignment;
      const std::uint64_t room = window_bytes - std::min(at, window_bytes);
      std::uint64_t end = extent.end;
      if (end - begin > room) end = cut_point(begin, room, grain_bytes);
      if (end == begin) {
        close();
        continue;
      }
      visit(window, {extent.file, begin, end, extent.rank}, at);
      buffer_bytes = at + end - begin;
      begin = end;
      if (begin < extent.end) close();
    }
  }
}

std::vector<Window> cut_windows(std::span<const Extent> extents, std::uint64_t window_bytes,
                                std::uint64_t grain_bytes) {
  std::vector<Window> windows;
  for_each_window_part(extents, window_bytes, grain_bytes,
                       [&](std::size_t window, const Extent& part, std::uint64_t offset) {
                         if (window == windows.size()) windows.emplace_back();
                         Window& open = windows[window];
                         open.parts.push_back(part);
                         open.offsets.push_back(offset);
                         open.bytes += part.end - part.begin;
                         open.buffer_bytes = offset + part.end - part.begin;
                       });
  return windows;
}

CellGrid::CellGrid(std::vector<std::uint64_t> file_sizes, std::uint64_t grain_bytes)
    : file_sizes_(std::move(file_sizes)), grain_bytes_(grain_bytes) {
  std::uint64_t cells = 0;
  for (const std::uint64_t size : file_sizes_) {
    first_.push_back(cells);
    cells = base::add(cells, base::ceil_div(size, grain_bytes), "number of grid cells");
  }
  first_.push_back(cells);
}

FileRange CellGrid::range_of(std::uint32_t file, std::size_t cell) const {
  const std::uint64_t begin = (cell - first_[file]) * grain_bytes_;
  return {file, begin, std::min(begin + grain_bytes_, file_sizes_[file])};
}

void CellSet::insert(const FileRange& range) {
  if (range.begin >= range.end) return;
  const std::size_t last = grid_->cell_of(range.file, range.end - 1);
  for (std::size_t cell = grid_->cell_of(range.file, range.begin); cell <= last; ++cell) insert(cell);
}

std::size_t CellSet::count() const {
  std::size_t cells = 0;
  for (const std::uint64_t word : words_) cells += static_cast<std::size_t>(std::popcount(word));
  return cells;
}

void CellSet::remove(const CellSet& others) {
  for (std::size_t w = 0; w < words_.size(); ++w) words_[w] &= ~others.words_[w];
}

std::vector<FileRange> CellSet::ranges() const {
  std::vector<FileRange> ranges;
  for (std::uint32_t file = 0; file < grid_->files(); ++file) {
    for (std::size_t cell = grid_->cell_of(file, 0); cell < grid_->end_of(file); ++cell) {
      if (!contains(cell)) continue;
      const FileRange range = grid_->range_of(file, cell);
      if (!ranges.empty() && ranges.back().file == file && ranges.back().end == range.begin) {
        ranges.back().end = range.end;
      } else {
        ranges.push_back(range);
      }
    }
  }
  return ranges;
}

}  // namespace cairn::plan
