// In each group, shares are equal within one block, so the aggregator of a block and the blocks of an aggregator cost
// one division each. For each range, the map stores only its position.
#include "plan/extents.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/checked.hpp"
#include "base/internal_error.hpp"
#include "cairn/error.hpp"

namespace cairn::plan {
namespace {

__extension__ using Wide = unsigned __int128;

std::uint64_t first_block_of(const FileRange& range, std::uint64_t block_bytes) { return range.begin / block_bytes; }

std::uint64_t blocks_of(const FileRange& range, std::uint64_t block_bytes) {
  return base::ceil_div(range.end, block_bytes) - range.begin / block_bytes;
}

/// The bytes of blocks [begin, end) of a range; blocks are counted from the range's own first block.
Extent extent_of_blocks(const FileRange& range, std::uint64_t begin, std::uint64_t end, std::uint64_t block_bytes) {
  const std::uint64_t first = first_block_of(range, block_bytes);
  Extent extent;
  extent.file = range.file;
  extent.begin = begin == 0 ? range.begin : (first + begin) * block_bytes;
  extent.end = end == blocks_of(range, block_bytes) ? range.end : (first + end) * block_bytes;
  return extent;
}

void check_ranges(const std::vector<FileRange>& ranges, std::uint64_t block_bytes) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const FileRange& range = ranges[i];
    if (range.end <= range.begin) {
      throw base::internal_error(fmt::format("extent map: range [{}, {}) of file {} ends before it begins", range.begin,
                                             range.end, range.file));
    }
    if (i == 0) continue;
    const FileRange& before = ranges[i - 1];
    const bool ascending =
        before.file < range.file ||
        (before.file == range.file && base::ceil_div(before.end, block_bytes) <= range.begin / block_bytes);
    if (!ascending) {
      throw base::internal_error(
          fmt::format("extent map: range [{}, {}) of file {} and range [{}, {}) of file {} are out of order or "
                      "share a block of {} bytes; widen_to_blocks merges such ranges",
                      before.begin, before.end, before.file, range.begin, range.end, range.file, block_bytes));
    }
  }
}

constexpr std::uint64_t kPageBytes = 4096;

/// The last multiple of the block at which an extent that begins at `begin` can be cut to fit `room` bytes;
/// `begin` if there is none.
std::uint64_t cut_point(std::uint64_t begin, std::uint64_t room, std::uint64_t block_bytes) {
  const std::uint64_t over = (begin % block_bytes + room % block_bytes) % block_bytes;
  return room < over ? begin : begin + (room - over);
}

}  // namespace

/// The share of aggregator w of n begins at block w * blocks / n. Shares differ by at most one block, and the larger
/// shares are spread over the aggregators instead of going to the first aggregators of every group.
class ExtentMap::Shares {
 public:
  explicit Shares(const Group& group)
      : blocks_(group.blocks), aggregators_(group.aggregators), first_(group.first_aggregator) {}
  [[nodiscard]] std::uint64_t first_block(int aggregator) const {
    if (aggregator <= first_) return 0;
    const auto w = static_cast<unsigned>(aggregator - first_);
    return w >= aggregators_ ? blocks_ : static_cast<std::uint64_t>(static_cast<Wide>(w) * blocks_ / aggregators_);
  }
  [[nodiscard]] int aggregator_of(std::uint64_t block) const {
    return first_ + static_cast<int>(((static_cast<Wide>(block) + 1) * aggregators_ - 1) / blocks_);
  }

 private:
  std::uint64_t blocks_;
  unsigned aggregators_;
  int first_;
};

ExtentMap::ExtentMap(std::vector<FileRange> ranges, int aggregators, std::uint64_t block_bytes, Assignment assignment)
    : ExtentMap(std::move(ranges), aggregators, block_bytes,
                std::make_shared<const Assignment>(std::move(assignment))) {}

ExtentMap::ExtentMap(std::vector<FileRange> ranges, int aggregators, std::uint64_t block_bytes,
                     std::shared_ptr<const Assignment> assignment)
    : aggregators_(aggregators),
      block_bytes_(block_bytes),
      assignment_(std::move(assignment)),
      ranges_(std::move(ranges)) {
  if (aggregators_ < 1 || block_bytes_ == 0) {
    throw base::internal_error(fmt::format("extent map: {} aggregators and blocks of {} bytes; both must be at least 1",
                                           aggregators_, block_bytes_));
  }
  const bool ranks_fit =
      assignment_->ranks.empty() || (assignment_->ranks.size() == static_cast<std::size_t>(aggregators_) &&
                                     std::is_sorted(assignment_->ranks.begin(), assignment_->ranks.end()));
  if (!ranks_fit || !std::is_sorted(assignment_->group_of_file.begin(), assignment_->group_of_file.end())) {
    throw base::internal_error("extent map: ranks of aggregators or groups of files do not ascend");
  }
  std::erase_if(ranges_, [](const FileRange& range) { return range.begin == range.end; });
  check_ranges(ranges_, block_bytes_);
  range_start_.reserve(ranges_.size());
  const auto group_of = [&](const FileRange& range) {
    if (assignment_->is_by_file()) return range.file;
    return assignment_->group_of_file.empty() ? 0 : assignment_->group_of_file.at(range.file);
  };
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    if (i == 0 || group_of(ranges_[i]) != group_of(ranges_[i - 1])) groups_.emplace_back();
    Group& group = groups_.back();
    range_start_.push_back(group.blocks);
    group.end_range = i + 1;
    group.blocks = base::add(group.blocks, blocks_of(ranges_[i], block_bytes_), "extent map blocks");
    total_bytes_ = base::add(total_bytes_, ranges_[i].end - ranges_[i].begin, "extent map bytes");
  }
  assign_groups();
}

/// A group with fewer blocks than aggregators is assigned to consecutive aggregators. The number of blocks before the
/// group determines the first of these, so that small groups do not all go to the first aggregators.
void ExtentMap::assign_groups() {
  std::uint64_t all_blocks = 0;
  for (const Group& group : groups_) all_blocks = base::add(all_blocks, group.blocks, "extent map blocks");
  const auto all = static_cast<std::uint64_t>(aggregators_);
  std::uint64_t before = 0;
  for (Group& group : groups_) {
    if (!assignment_->aggregator_of_file.empty()) {
      group.aggregators = 1;
      group.first_aggregator = assignment_->aggregator_of_file.at(ranges_[group.end_range - 1].file);
    } else if (assignment_->one_aggregator_per_file) {
      group.aggregators = 1;
      group.first_aggregator = static_cast<int>(static_cast<Wide>(before + group.blocks / 2) * all / all_blocks);
    } else {
      group.aggregators = static_cast<unsigned>(std::min(group.blocks, all));
      group.first_aggregator = static_cast<int>(std::min(before % all, all - group.aggregators));
    }
    before += group.blocks;
  }
}

int ExtentMap::rank_of(int aggregator) const {
  return assignment_->ranks.empty() ? aggregator : assignment_->ranks[static_cast<std::size_t>(aggregator)];
}

const ExtentMap::Group& ExtentMap::group_of_range(std::size_t range) const {
  return *std::partition_point(groups_.begin(), groups_.end(), [&](const Group& g) { return g.end_range <= range; });
}

std::vector<Extent> ExtentMap::of(int rank) const {
  std::vector<Extent> out;
  int aggregator = rank;
  if (!assignment_->ranks.empty()) {
    const auto found = std::lower_bound(assignment_->ranks.begin(), assignment_->ranks.end(), rank);
    if (found == assignment_->ranks.end() || *found != rank) return out;
    aggregator = static_cast<int>(found - assignment_->ranks.begin());
  }
  if (aggregator < 0 || aggregator >= aggregators_) return out;
  std::size_t first_range = 0;
  for (const Group& group : groups_) {
    const Shares shares(group);
    const std::uint64_t begin = shares.first_block(aggregator);
    const std::uint64_t end = shares.first_block(aggregator + 1);
    const auto starts = range_start_.begin();
    const auto after = std::upper_bound(starts + static_cast<std::ptrdiff_t>(first_range),
                                        starts + static_cast<std::ptrdiff_t>(group.end_range), begin);
    for (auto i = static_cast<std::size_t>(after - starts) - 1; begin < end && i < group.end_range; ++i) {
      const std::uint64_t start = range_start_[i];
      if (start >= end) break;
      const std::uint64_t stop = std::min(end, start + blocks_of(ranges_[i], block_bytes_));
      Extent extent = extent_of_blocks(ranges_[i], std::max(begin, start) - start, stop - start, block_bytes_);
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
    const std::uint64_t first = first_block_of(*range, block_bytes_);
    const int last_aggregator = shares.aggregator_of(start + (high - 1) / block_bytes_ - first);
    for (int aggregator = shares.aggregator_of(start + low / block_bytes_ - first); aggregator <= last_aggregator;
         ++aggregator) {
      const std::uint64_t from = std::max(shares.first_block(aggregator), start) - start;
      const std::uint64_t to =
          std::min(shares.first_block(aggregator + 1), start + blocks_of(*range, block_bytes_)) - start;
      Extent extent = extent_of_blocks(*range, from, to, block_bytes_);
      extent.begin = std::max(extent.begin, low);
      extent.end = std::min(extent.end, high);
      extent.rank = rank_of(aggregator);
      out.push_back(extent);
    }
  }
  return out;
}

ExtentMap::AggregatorRange ExtentMap::aggregators_of_file(std::uint32_t file) const {
  const auto first =
      std::partition_point(ranges_.begin(), ranges_.end(), [&](const FileRange& r) { return r.file < file; });
  const auto last = std::partition_point(first, ranges_.end(), [&](const FileRange& r) { return r.file == file; });
  if (first == last) return {};
  const auto first_number = static_cast<std::size_t>(first - ranges_.begin());
  const auto end = static_cast<std::size_t>(last - ranges_.begin());
  const Group& group = group_of_range(first_number);
  const Shares shares(group);
  const std::uint64_t last_block = (end == group.end_range ? group.blocks : range_start_[end]) - 1;
  return {rank_of(shares.aggregator_of(range_start_[first_number])), rank_of(shares.aggregator_of(last_block))};
}

std::vector<std::uint32_t> ExtentMap::files() const {
  std::vector<std::uint32_t> files;
  for (const FileRange& range : ranges_) {
    if (files.empty() || files.back() != range.file) files.push_back(range.file);
  }
  return files;
}

std::vector<ExtentMap::AggregatorRange> ExtentMaps::aggregators_of_files(std::uint32_t files) const {
  std::vector<ExtentMap::AggregatorRange> all(files);
  for (const ExtentMap& map : maps_) {
    for (const std::uint32_t file : map.files()) {
      const auto [first, last] = map.aggregators_of_file(file);
      ExtentMap::AggregatorRange& range = all.at(file);
      range = range.first > range.last
                  ? ExtentMap::AggregatorRange{first, last}
                  : ExtentMap::AggregatorRange{std::min(range.first, first), std::max(range.last, last)};
    }
  }
  return all;
}

std::vector<std::uint32_t> ExtentMaps::files_of(int rank) const {
  std::vector<std::uint32_t> files;
  for (const ExtentMap& map : maps_) {
    for (const Extent& extent : map.of(rank)) {
      if (files.empty() || files.back() != extent.file) files.push_back(extent.file);
    }
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

std::uint64_t ExtentMaps::total_bytes() const {
  std::uint64_t bytes = 0;
  for (const ExtentMap& map : maps_) bytes = base::add(bytes, map.total_bytes(), "bytes of all batches");
  return bytes;
}

std::vector<std::uint32_t> section_groups(std::span<const std::string_view> sections) {
  std::vector<std::uint32_t> groups;
  std::string_view section;
  std::uint32_t group = 0;
  for (const std::string_view of_file : sections) {
    if (!section.empty() && !of_file.empty() && of_file != section) ++group;
    if (!of_file.empty()) section = of_file;
    groups.push_back(group);
  }
  return groups;
}

std::vector<std::uint32_t> section_groups(const format::StoredCheckpoint& stored) {
  std::vector<std::string_view> sections(stored.files.size());
  for (const auto& tensor : stored.tensors) {
    for (const auto& box : tensor.boxes) sections.at(box.file) = tensor.section;
  }
  return section_groups(std::span<const std::string_view>(sections));
}

std::vector<std::uint32_t> section_groups(const PackedCheckpoint& stored) {
  std::vector<std::string_view> sections(stored.files.size());
  for (auto cursor = stored.tensors.cursor(); cursor.next();) {
    const format::PlacedTensor tensor = cursor.placed();
    if (!tensor.in_parts) sections.at(tensor.file) = tensor.section;
    for (const auto& box : tensor.boxes) sections.at(box.file) = tensor.section;
  }
  return section_groups(std::span<const std::string_view>(sections));
}

std::vector<FileRange> whole_files(std::span<const std::uint64_t> file_sizes) {
  std::vector<FileRange> out;
  out.reserve(file_sizes.size());
  for (std::size_t i = 0; i < file_sizes.size(); ++i) {
    out.push_back({base::narrow<std::uint32_t>(i, "number of files"), 0, file_sizes[i]});
  }
  return out;
}

std::vector<FileRange> widen_to_blocks(std::vector<FileRange> ranges, std::span<const std::uint64_t> file_sizes,
                                       std::uint64_t block_bytes) {
  std::erase_if(ranges, [](const FileRange& range) { return range.begin == range.end; });
  for (FileRange& range : ranges) {
    if (range.file >= file_sizes.size() || range.begin > range.end || range.end > file_sizes[range.file]) {
      throw base::internal_error(fmt::format("range [{}, {}) lies outside file {} of {} bytes", range.begin, range.end,
                                             range.file, range.file < file_sizes.size() ? file_sizes[range.file] : 0));
    }
    const std::uint64_t size = file_sizes[range.file];
    const std::uint64_t end_block = base::ceil_div(range.end, block_bytes);
    range.begin -= range.begin % block_bytes;
    range.end = end_block > size / block_bytes ? size : end_block * block_bytes;
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

void for_each_window_part(std::span<const Extent> extents, std::uint64_t window_bytes, std::uint64_t block_bytes,
                          const VisitWindowPart& visit) {
  if (block_bytes == 0 || window_bytes < block_bytes) {
    throw Error(ErrorKind::kUsage, fmt::format("a window of {} bytes cannot hold a checksum block of {} bytes; give it "
                                               "more memory or make the block smaller",
                                               window_bytes, block_bytes));
  }
  const std::uint64_t alignment = block_bytes % kPageBytes == 0 ? kPageBytes : 1;
  std::size_t window = 0;
  std::uint64_t buffer_bytes = 0;  // size of the open window; 0 as long as the window has no part
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
      if (end - begin > room) end = cut_point(begin, room, block_bytes);
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
                                std::uint64_t block_bytes) {
  std::vector<Window> windows;
  for_each_window_part(extents, window_bytes, block_bytes,
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

BlockGrid::BlockGrid(std::vector<std::uint64_t> file_sizes, std::uint64_t block_bytes)
    : file_sizes_(std::move(file_sizes)), block_bytes_(block_bytes) {
  std::uint64_t blocks = 0;
  for (const std::uint64_t size : file_sizes_) {
    first_.push_back(blocks);
    blocks = base::add(blocks, base::ceil_div(size, block_bytes), "number of blocks");
  }
  first_.push_back(blocks);
}

FileRange BlockGrid::range_of(std::uint32_t file, std::size_t block) const {
  const std::uint64_t begin = (block - first_[file]) * block_bytes_;
  return {file, begin, std::min(begin + block_bytes_, file_sizes_[file])};
}

void BlockSet::insert(const FileRange& range) {
  if (range.begin >= range.end) return;
  const std::size_t last = grid_->block_of(range.file, range.end - 1);
  for (std::size_t block = grid_->block_of(range.file, range.begin); block <= last; ++block) insert(block);
}

std::size_t BlockSet::count() const {
  std::size_t blocks = 0;
  for (const std::uint64_t word : words_) blocks += static_cast<std::size_t>(std::popcount(word));
  return blocks;
}

void BlockSet::add(const BlockSet& others) {
  for (std::size_t i = 0; i < words_.size(); ++i) words_[i] |= others.words_[i];
}

void BlockSet::remove(const BlockSet& others) {
  for (std::size_t w = 0; w < words_.size(); ++w) words_[w] &= ~others.words_[w];
}

std::size_t BlockSet::first_from(std::size_t block, std::size_t end, bool is_in) const {
  while (block < end) {
    const std::uint64_t word = is_in ? words_[block / 64] : ~words_[block / 64];
    if (const std::uint64_t rest = word >> block % 64; rest != 0) {
      return std::min(block + static_cast<std::size_t>(std::countr_zero(rest)), end);
    }
    block = (block / 64 + 1) * 64;
  }
  return end;
}

std::vector<FileRange> BlockSet::ranges() const {
  std::vector<FileRange> ranges;
  for (std::uint32_t file = 0; file < grid_->files(); ++file) {
    const std::size_t end = grid_->end_of(file);
    for (std::size_t block = first_from(grid_->block_of(file, 0), end, true); block < end;) {
      const std::size_t behind = first_from(block, end, false);
      ranges.push_back({file, grid_->range_of(file, block).begin, grid_->range_of(file, behind - 1).end});
      block = first_from(behind, end, true);
    }
  }
  return ranges;
}

}  // namespace cairn::plan
