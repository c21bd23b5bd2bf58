#include "plan/cells.hpp"

#include <algorithm>
#include <bit>

#include "base/checked.hpp"

namespace cairn::plan {

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
