// The cells of a grid over all files: [i * grain, min((i + 1) * grain, size)) of each file, numbered through.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/extents.hpp"

namespace cairn::plan {

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
